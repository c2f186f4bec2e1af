"""The StepStream draft compiles, and keeps what docs/step-stream.md promises about its shape and size."""

import importlib.resources
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

protoc = pytest.importorskip(
    "grpc_tools.protoc", reason="grpcio-tools compiles the draft; requirements/test.txt has it"
)

ROOT = Path(__file__).resolve().parents[2] / "proto"
SOURCE = "smg_server/engine/v1/step_stream.proto"
PACKAGE = "smg_server.engine.v1"
ARRAYS = {
    "EngineFrame": ("handle", "count", "token"),
    "Logprobs": ("row", "sampled", "top_count", "top_id", "top"),
    "ClientFrame": ("credit_handle", "credit_tokens", "abort_handle"),
    "Submit": ("prompt_id", "stop_id"),
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """A pool of its own, so that the draft never meets the contracts of the default one."""
    out = tmp_path_factory.mktemp("proto") / "step_stream.pb"
    include = importlib.resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{ROOT}", f"-I{include}", f"--descriptor_set_out={out}", str(ROOT / SOURCE)]
    assert protoc.main(arguments) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def message(pool, name):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def test_the_service_is_one_bidirectional_stream(pool):
    service = pool.FindServiceByName(f"{PACKAGE}.StepStream")
    (method,) = service.methods
    assert method.name == "Connect"
    assert method.client_streaming
    assert method.server_streaming


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in ARRAYS.items() for field in fields])
def test_arrays_are_packed(pool, name, field):
    assert pool.FindMessageTypeByName(f"{PACKAGE}.{name}").fields_by_name[field].is_packed


def test_client_fields_are_numbered_in_the_order_they_are_applied(pool):
    fields = pool.FindMessageTypeByName(f"{PACKAGE}.ClientFrame").fields
    order = [field.name for field in sorted(fields, key=lambda field: field.number)]
    assert order == ["open", "acked_frame", "credit_handle", "credit_tokens", "abort_handle", "submit"]


def test_sampling_tells_zero_from_unset(pool):
    fields = pool.FindMessageTypeByName(f"{PACKAGE}.Sampling").fields
    assert all(field.has_presence for field in fields if not field.is_repeated)


def test_every_enum_starts_with_unspecified(pool):
    for name in ("FinishReason", "ErrorCode"):
        assert pool.FindEnumTypeByName(f"{PACKAGE}.{name}").values_by_number[0].name.endswith("_UNSPECIFIED")


def test_a_decode_step_of_256_rows_fits_into_1300_bytes(pool):
    frame = message(pool, "EngineFrame")(number=1_000_000, step=1_000_000, handle=range(256), token=[151_000] * 256)
    frame.load.add(running=256, used_tokens=400_000, max_tokens=524_288)
    assert frame.ByteSize() <= 1300


def test_a_prompt_of_a_million_tokens_fits_into_a_default_grpc_message(pool):
    frame = message(pool, "ClientFrame")()
    frame.submit.add(handle=1, prompt_id=[151_000] * 1_000_000)
    assert frame.ByteSize() < 4 << 20


def test_rows_with_several_tokens_and_logprobs_come_back_as_sent(pool):
    kind = message(pool, "EngineFrame")
    sent = kind(number=7, handle=[3, 9], count=[2, 1], token=[10, 11, 12])
    sent.logprobs.row.append(0)
    sent.logprobs.sampled.extend([-0.5, -0.25])
    sent.logprobs.top_count.extend([1, 0])
    sent.logprobs.top_id.append(10)
    sent.logprobs.top.append(-0.5)
    got = kind.FromString(sent.SerializeToString())
    assert list(got.count) == [2, 1]
    assert list(got.token) == [10, 11, 12]
    assert list(got.logprobs.sampled) == [-0.5, -0.25]
    assert list(got.logprobs.top_count) == [1, 0]
