"""The protobuf reader of the hot message, against the generated contract (spec engine-contract 3.2, 4.4)."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engines.vllm.decode import VllmDecoder

LAYOUT = VllmDecoder.layout

U32 = st.integers(0, 2**32 - 1)
SMALL = st.integers(0, 300)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, kind: int, value: bytes) -> bytes:
    return varint(number << 3 | kind) + value


def block(number: int, value: bytes) -> bytes:
    return field(number, 2, varint(len(value)) + value)


def oracle(message: bytes):
    """What the generated contract makes of ``message``: facts of a chunk, None for another message, or ValueError."""
    try:
        response = pb.GenerateResponse.FromString(message)
    except DecodeError:
        return ValueError
    chunk = response.chunk
    if (
        response.WhichOneof("response") != "chunk"
        or chunk.HasField("output_logprobs")
        or chunk.HasField("input_logprobs")
    ):
        return None
    return chunk.index, list(chunk.token_ids), chunk.prompt_tokens, chunk.completion_tokens, chunk.cached_tokens


def verdict(message: bytes):
    try:
        return LAYOUT.read(message)
    except ValueError:
        return ValueError


def agrees(message: bytes) -> None:
    """What is read here is read the same there; only what is no message there is refused here; None is no verdict."""
    ours = verdict(message)
    if ours is not None:
        assert ours == oracle(message)


chunks = st.builds(
    pb.GenerateStreamChunk,
    token_ids=st.lists(SMALL | U32, max_size=40),
    prompt_tokens=SMALL | U32,
    completion_tokens=SMALL,
    cached_tokens=SMALL | U32,
    index=SMALL | U32,
)
logprobs = st.builds(pb.OutputLogProbs, token_logprobs=st.lists(st.floats(width=32), max_size=3))
responses = st.one_of(
    chunks.map(lambda chunk: pb.GenerateResponse(chunk=chunk)),
    st.builds(
        lambda chunk, found: pb.GenerateResponse(
            chunk=pb.GenerateStreamChunk(token_ids=chunk.token_ids, output_logprobs=found)
        ),
        chunks,
        logprobs,
    ),
    st.builds(
        lambda ids, reason: pb.GenerateResponse(complete=pb.GenerateComplete(output_ids=ids, finish_reason=reason)),
        st.lists(U32, max_size=5),
        st.sampled_from(["", "stop", "length"]),
    ),
).map(lambda message: message.SerializeToString())


@given(chunks)
def test_chunks_are_read_as_the_contract_reads_them(chunk):
    message = pb.GenerateResponse(chunk=chunk).SerializeToString()
    assert LAYOUT.read(message) == oracle(message) is not None


def test_ids_may_be_packed_or_not_or_both():
    body = field(1, 0, varint(300)) + block(1, varint(1) + varint(2**32 - 1)) + field(1, 0, varint(0))
    message = block(1, body)
    assert LAYOUT.read(message) == (0, [300, 1, 2**32 - 1, 0], 0, 0, 0) == oracle(message)


def test_an_empty_chunk_is_a_chunk():
    assert LAYOUT.read(block(1, b"")) == (0, [], 0, 0, 0)


def test_unknown_fields_are_skipped_wherever_they_are():
    unknown = [field(90, 0, varint(7)), field(91, 1, bytes(8)), block(92, b"later"), field(93, 5, bytes(4))]
    known = block(1, varint(5)) + field(7, 0, varint(2))
    for extra in unknown:
        for body in (extra + known, known + extra):
            for message in (block(1, body), extra + block(1, body), block(1, body) + extra):
                assert LAYOUT.read(message) == (2, [5], 0, 0, 0) == oracle(message)


def test_the_last_of_a_repeated_scalar_counts_and_64_bits_are_cut_to_32():
    message = block(1, field(7, 0, varint(1)) + field(7, 0, varint(9)) + field(2, 0, varint(2**40 + 3)))
    assert LAYOUT.read(message) == (9, [], 3, 0, 0) == oracle(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        block(2, b""),
        block(1, block(5, b"")),
        block(1, block(6, b"")),
        block(1, field(7, 0, varint(1))) * 2,  # to be merged
        block(1, b"") + block(2, b""),
        field(1, 3, field(1, 4, b"")) + block(1, b""),  # a group
        block(1, field(90, 3, field(90, 4, b""))),
        field(90, 0, varint(1)),
    ],
    ids=range(9),
)
def test_everything_else_is_for_the_contract(message):
    assert LAYOUT.read(message) is None
    assert oracle(message) is not ValueError


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a",
        b"\x0a\x05\x08",
        b"\x80",
        b"\xff" * 11,
        b"\x00\x00",  # field 0
        block(1, b"\x0a\x01\x80"),  # the last packed id is cut
        block(1, b"\x0a\x02\x01"),
        block(1, b"\x10" + b"\xff" * 10),  # a varint of more than ten bytes
        b"\x0c",  # end of a group that never began
        b"\x0e\x00",
        b"\x0f\x00",
        field(90, 1, bytes(7)),
        field(90, 5, bytes(3)),
    ],
    ids=range(13),
)
def test_what_is_no_message_is_refused(message):
    assert verdict(message) is ValueError
    assert oracle(message) is ValueError


@given(responses, st.data())
def test_truncated_messages(message, data):
    agrees(message[: data.draw(st.integers(0, len(message)))])


@given(responses, st.data())
def test_mutated_messages(message, data):
    mutated = bytearray(message)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(mutated)))
        mutated[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    agrees(bytes(mutated))


@given(st.binary(max_size=64))
@example(b"\x0a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(b"\x0a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x88\x80\x80\x80\x80\x10\x00")
def test_random_bytes(message):
    agrees(message)
    agrees(block(1, message))


@given(responses)
def test_well_formed_messages_are_never_refused(message):
    assert verdict(message) is not ValueError


@pytest.mark.parametrize("value", [None, "text", 3])
def test_only_bytes_are_messages(value):
    with pytest.raises(TypeError):
        LAYOUT.read(value)
