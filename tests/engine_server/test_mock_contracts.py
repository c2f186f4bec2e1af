"""The mock keeps each contract's own ways (spec engine-contract 2.1, 2.2, 2.3, 2.6, 2.9)."""

from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from smg.engine_server.mock import CONTRACTS, EOS, MockEngine, Script

IDS = [10, 11, 12]
# The scalars that zero breaks, set; and the fields whose names differ.
SCALARS = {
    "vllm": {"top_p": 1.0, "repetition_penalty": 1.0, "n": 1},
    "sglang": {"top_p": 1.0, "repetition_penalty": 1.0, "top_k": -1, "n": 1},
    "trtllm": {"beam_width": 1, "num_return_sequences": 1},
    "mlx": {"top_p": 1.0, "repetition_penalty": 1.0},
    "tokenspeed": {"n": 1},
}


class Client:
    """Calls one engine by names, with keyword arguments for fields."""

    def __init__(self, contract, channel):
        self.contract = contract
        self._methods = {method.name: method for method in CONTRACTS[contract]().service.methods}
        self._channel = channel

    def call(self, name, **fields):
        method = self._methods[name]
        make = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        ask, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{name}"
        stub = make(path, request_serializer=ask.SerializeToString, response_deserializer=answer.FromString)
        return stub(ask(**fields))

    def generate(self, *, stream=True, id="r-1", params=None, **fields):
        trt = self.contract == "trtllm"
        tokenized = {"input_token_ids" if trt else "input_ids": [1, 2]}
        sampling = {"sampling_config" if trt else "sampling_params": SCALARS[self.contract] | (params or {})}
        flag = {"streaming" if trt else "stream": stream}
        limit = {"max_tokens": 64} if trt else {}
        return self.call("Generate", request_id=id, tokenized=tokenized, **(sampling | flag | limit | fields))

    async def answer(self, **fields):
        """Parts of one Generate: chunks, completes."""
        parts = [getattr(each, each.WhichOneof("response")) async for each in self.generate(**fields)]
        completes = [part for part in parts if "finish_reason" in part.DESCRIPTOR.fields_by_name]
        return [part for part in parts if part not in completes], completes


@asynccontextmanager
async def client_of(contract, script):
    engine = MockEngine(script, contract=contract)
    async with engine, grpc.aio.insecure_channel(engine.address) as channel:
        client = Client(contract, channel)
        client.engine = engine
        yield client


@pytest.fixture(params=list(CONTRACTS))
async def client(request):
    async with client_of(request.param, Script(tokens=IDS, per_chunk=2)) as client:
        yield client


@pytest.fixture
async def connected():
    """Clients of the contracts a test names."""
    async with AsyncExitStack() as stack:

        async def connect(contract, script=None):
            return await stack.enter_async_context(client_of(contract, script or Script(tokens=IDS, per_chunk=2)))

        yield connect


async def refused(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return caught.value.details()


def ids_of(complete):
    return list(complete.output_token_ids if hasattr(complete, "output_token_ids") else complete.output_ids)


# The ends that TensorRT-LLM and TokenSpeed cut unless they are told to keep them.
KEPT = {"vllm": [EOS], "sglang": [EOS], "trtllm": [], "mlx": [EOS], "tokenspeed": []}
REPEATED = {"vllm": [12, EOS], "sglang": [12, EOS], "trtllm": IDS, "mlx": [], "tokenspeed": [12]}
COUNTS = {"vllm": [2, 2], "sglang": [2, 4], "trtllm": [2, 3], "mlx": [2, 4], "tokenspeed": [2, 3]}


async def test_chunks_and_complete(client):
    chunks, [complete] = await client.answer()
    contract = client.contract
    assert [token for chunk in chunks for token in chunk.token_ids] == IDS + KEPT[contract]
    assert [chunk.completion_tokens for chunk in chunks] == COUNTS[contract]
    assert ids_of(complete) == REPEATED[contract]
    assert complete.completion_tokens == COUNTS[contract][-1]
    assert (complete.prompt_tokens, complete.finish_reason) == (2, "stop")


async def test_without_stream_everything_is_in_the_complete(client):
    chunks, [complete] = await client.answer(stream=False)
    assert chunks == []
    assert ids_of(complete) == IDS + KEPT[client.contract]
    assert complete.completion_tokens == len(IDS + KEPT[client.contract])


@pytest.mark.parametrize(
    ("contract", "fields"),
    [("trtllm", {"include_stop_token_in_output": True}), ("tokenspeed", {"params": {"no_stop_trim": True}})],
)
async def test_ends_are_kept_on_demand(connected, contract, fields):
    client = await connected(contract)
    chunks, _ = await client.answer(**fields)
    assert [token for chunk in chunks for token in chunk.token_ids] == [*IDS, EOS]


async def test_trtllm_tells_stop_ids_from_the_models_end(connected):
    client = await connected("trtllm")
    _, [complete] = await client.answer(stop_token_ids=[11])
    assert (complete.finish_reason, complete.matched_token_id, ids_of(complete)) == ("stop_word", 11, [10])


@pytest.mark.parametrize("contract", ["vllm", "sglang", "tokenspeed", "trtllm"])
@pytest.mark.parametrize("stream", [True, False])
async def test_numbers_of_choices(connected, contract, stream):
    client = await connected(contract, Script(choices=[[1, 2, 3], [4], [5, 6]]))
    n = "num_return_sequences" if contract == "trtllm" else "n"
    _, completes = await client.answer(stream=stream, params={n: 3})
    indexes = [getattr(each, "sequence_index", None) or getattr(each, "index", 0) for each in completes]
    if contract == "sglang" and not stream:
        assert indexes == [0, 0, 0]  # one after the other, without their numbers
        assert [ids_of(each)[0] for each in completes] == [1, 4, 5]
    else:
        assert sorted(indexes) == [0, 1, 2]


@pytest.mark.parametrize(
    ("contract", "field"),
    [
        *(("vllm", field) for field in ("top_p", "repetition_penalty", "n")),
        *(("sglang", field) for field in ("top_p", "repetition_penalty", "n", "top_k")),
        *(("trtllm", field) for field in ("num_return_sequences", "top_p", "repetition_penalty", "beam_width")),
        *(("mlx", field) for field in ("top_p", "repetition_penalty")),
        *(("tokenspeed", field) for field in ("n", "top_p", "repetition_penalty", "top_k")),
    ],
)
async def test_forgotten_scalars_are_refused(connected, contract, field):
    client = await connected(contract)
    assert field in await refused(client.generate(params={field: 0}))


async def test_other_refusals(connected):
    trtllm, sglang = await connected("trtllm"), await connected("sglang")
    assert "max_tokens" in await refused(trtllm.generate(max_tokens=0))
    assert "embedding_bias" in await refused(trtllm.generate(embedding_bias=[1.0]))
    assert "stop strings" in await refused(sglang.generate(params={"stop": ["x"]}))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await sglang.call("GetLoads", include=["everything"])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("contract", list(CONTRACTS))
async def test_abort_ends_what_it_names_and_with_sglang_what_begins_so(connected, settle, contract):
    client = await connected(contract, Script(length=100, chunk_delay=30))
    calls = [client.generate(id=name) for name in ("a-1", "a-1x", "b")]
    for call in calls:
        await call.read()
    many = contract in ("vllm", "mlx")
    await client.call("Abort", **({"request_ids": ["a-1"]} if many else {"request_id": "a-1"}))
    ended = {"a-1", "a-1x"} if contract == "sglang" else {"a-1"}
    await settle(lambda: client.engine.running, 3 - len(ended))
    assert {entry.id for entry in client.engine.requests if entry.state == "aborted"} == ended


@pytest.mark.parametrize("contract", ["sglang", "trtllm", "tokenspeed"])
async def test_aborting_what_does_not_run_is_no_error(connected, contract):
    client = await connected(contract)
    assert not (await client.call("Abort", request_id="nobody")).success
    assert client.engine.aborted == ["nobody"]


async def test_what_a_contract_lacks_is_unimplemented(connected):
    lacking = (("trtllm", "FlushCache"), ("trtllm", "Embed"), ("mlx", "GetLoads"), ("sglang", "LoadLoRAAdapter"))
    for contract, name in lacking:
        client = await connected(contract)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client._channel.unary_unary(f"/{client.engine.service}/{name}")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED, (contract, name)


async def test_chunks_of_the_tokenizer_bundle_have_the_contracts_size(connected):
    mlx = await connected("mlx")
    mlx.engine.script = Script(bundle=bytes(600_000))
    assert [len(chunk.data) async for chunk in mlx.call("GetTokenizer")] == [512 << 10, 600_000 - (512 << 10)]
