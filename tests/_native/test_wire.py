"""The protobuf reader of the hot message, against the generated contracts (spec engine-contract 3.2 to 3.6, 4.4)."""

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import example, given
from hypothesis import strategies as st

from smg._native.wire import Layout
from smg.core.backends import EngineRequest
from smg.core.request import Limits, Sampling
from smg.engines.decoding import StreamDecoder
from smg.engines.table import ADAPTERS, adapter
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


class Contract:
    """A contract's generated messages, its layout, and which numbers the layout gives to what, by the fields' names."""

    def __init__(self, name: str) -> None:
        decoder: Any = adapter(name).decoder(EngineRequest("r", [1], Sampling(), Limits(max_tokens=1)))
        assert isinstance(decoder, StreamDecoder)
        self.name = name
        self.decoder = decoder
        self.layout = decoder.layout
        self.answer = decoder.response
        self.chunk = GetMessageClass(self.answer.DESCRIPTOR.fields_by_name["chunk"].message_type)

    def number(self, name: str, chunk: bool = True) -> int:
        return int((self.chunk if chunk else self.answer).DESCRIPTOR.fields_by_name[name].number)

    def answering(self, fields: dict[str, Any]) -> Any:
        """A GenerateResponse with a chunk that has ``fields``, as far as the contract has them."""
        known = self.chunk.DESCRIPTOR.fields_by_name
        named = {self.decoder.index if name == "index" else name: value for name, value in fields.items()}
        chunk = self.chunk(**{name: value for name, value in named.items() if name in known})
        more = {"request_id": "req-1"} if "request_id" in self.answer.DESCRIPTOR.fields_by_name else {}
        return self.answer(chunk=chunk, **more)

    def oracle(self, message: bytes):
        """What the contract itself makes of ``message``: facts of a chunk, None for another message, or ValueError."""
        try:
            response = self.answer.FromString(message)
        except DecodeError:
            return ValueError
        chunk = response.chunk
        if response.WhichOneof("response") != "chunk" or any(
            field.message_type is not None or field.name == "hidden_states" for field, _ in chunk.ListFields()
        ):
            return None
        counts = (chunk.prompt_tokens, chunk.completion_tokens, chunk.cached_tokens)
        more = (getattr(chunk, "reasoning_tokens", 0), getattr(chunk, "weight_version", ""))
        return getattr(chunk, self.decoder.index), list(chunk.token_ids), *counts, *more

    def verdict(self, message: bytes):
        try:
            return self.layout.read(message)
        except ValueError:
            return ValueError

    def agrees(self, message: bytes) -> None:
        """What is read here is read the same there, and refused only if it is refused there. None is no verdict."""
        ours = self.verdict(message)
        if ours is not None:
            assert ours == self.oracle(message)


CONTRACTS = {name: Contract(name) for name in ADAPTERS}
VLLM = CONTRACTS["vllm"]
oracle, verdict = VLLM.oracle, VLLM.verdict

every = pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)

fields = st.fixed_dictionaries(
    {"token_ids": st.lists(SMALL | U32, max_size=40)},
    optional={
        "prompt_tokens": SMALL | U32,
        "completion_tokens": SMALL,
        "cached_tokens": SMALL | U32,
        "reasoning_tokens": SMALL | U32,
        "index": SMALL | U32,
        "weight_version": st.text(st.characters(max_codepoint=127), max_size=12),
    },
)


def cold_chunk(contract: Contract, plain: dict[str, Any], place: int) -> Any:
    """A chunk with one more field that only the contract reads."""
    answer = contract.answering(plain)
    colds = [
        field
        for field in contract.chunk.DESCRIPTOR.fields
        if field.message_type is not None or field.name == "hidden_states"
    ]
    chosen = colds[place % len(colds)]
    if chosen.name == "hidden_states":
        answer.chunk.hidden_states.append(0.5)
    elif chosen.is_repeated:
        getattr(answer.chunk, chosen.name).add()
    else:
        getattr(answer.chunk, chosen.name).SetInParent()
    return answer


def complete(contract: Contract, reason: str) -> Any:
    answer = contract.answering({})
    answer.complete.finish_reason = reason
    return answer


def responses(contract: Contract):
    """Whole messages of a contract: plain chunks, chunks with what only it reads, Completes."""
    return st.one_of(
        fields.map(contract.answering),
        st.builds(lambda plain, place: cold_chunk(contract, plain, place), fields, st.integers(0, 3)),
        st.sampled_from(["", "stop", "length"]).map(lambda reason: complete(contract, reason)),
    ).map(lambda message: message.SerializeToString())


@every
class TestEveryContract:
    @given(fields)
    def test_chunks_are_read_as_the_contract_reads_them(self, contract, plain):
        message = contract.answering(plain).SerializeToString()
        assert contract.layout.read(message) == contract.oracle(message) is not None

    def test_each_number_comes_from_its_own_field(self, contract):
        plain = {
            "token_ids": [300, 1],
            "prompt_tokens": 11,
            "completion_tokens": 12,
            "cached_tokens": 13,
            "index": 14,
            "reasoning_tokens": 15,
            "weight_version": "v16",
        }
        known = contract.chunk.DESCRIPTOR.fields_by_name
        more = [
            plain[name] if name in known else none for name, none in (("reasoning_tokens", 0), ("weight_version", ""))
        ]
        message = contract.answering(plain).SerializeToString()
        assert contract.layout.read(message) == (14, [300, 1], 11, 12, 13, *more)

    def test_whatever_the_contract_has_in_a_chunk_is_read_or_left_to_it(self, contract):
        """A field that a new version of the contract adds shows here, and has to be decided on."""
        read = {
            *("token_ids", "prompt_tokens", "completion_tokens", "cached_tokens", contract.decoder.index),
            *("reasoning_tokens", "weight_version"),
        }
        left = {field.name for field in contract.chunk.DESCRIPTOR.fields} - read
        assert left <= {"output_logprobs", "input_logprobs", "logprobs", "hidden_states"}
        for name in left:
            message = block(contract.number("chunk", chunk=False), block(contract.number(name), b""))
            assert contract.layout.read(message) is None, name
        assert {field.name for field in contract.answer.DESCRIPTOR.fields} <= {"request_id", "chunk", "complete"}

    def test_messages_and_lists_other_than_ids_are_left_to_the_contract(self, contract):
        for field in contract.chunk.DESCRIPTOR.fields:
            if field.name != "token_ids" and (field.type == FieldDescriptor.TYPE_MESSAGE or field.is_repeated):
                message = block(contract.number("chunk", chunk=False), block(field.number, b""))
                assert contract.layout.read(message) is None, field.name

    @given(st.data())
    def test_what_only_the_contract_reads_is_left_to_it(self, contract, data):
        answer = cold_chunk(contract, data.draw(fields), data.draw(st.integers(0, 3)))
        assert contract.layout.read(answer.SerializeToString()) is None
        assert contract.layout.read(complete(contract, "stop").SerializeToString()) is None

    @given(st.data())
    def test_truncated_messages(self, contract, data):
        message = data.draw(responses(contract))
        contract.agrees(message[: data.draw(st.integers(0, len(message)))])

    @given(st.data())
    def test_mutated_messages(self, contract, data):
        mutated = bytearray(data.draw(responses(contract)))
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(mutated)))
            mutated[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        contract.agrees(bytes(mutated))

    @given(st.binary(max_size=64))
    def test_random_bytes(self, contract, message):
        contract.agrees(message)
        contract.agrees(block(contract.number("chunk", chunk=False), message))

    @given(st.data())
    def test_well_formed_messages_are_never_refused(self, contract, data):
        assert contract.verdict(data.draw(responses(contract))) is not ValueError

    def test_text_that_may_not_be_utf_8_is_left_to_the_contract(self, contract):
        texts = [
            (contract.number(name, chunk), chunk)
            for name, chunk in (("request_id", False), ("weight_version", True))
            if name in (contract.chunk if chunk else contract.answer).DESCRIPTOR.fields_by_name
        ]
        outer = contract.number("chunk", chunk=False)
        for number, inside in texts:
            for text in (b"\xff", "\u00fc".encode()):
                part = block(number, text)
                message = block(outer, part) if inside else part + block(outer, b"")
                assert contract.layout.read(message) is None


def test_ids_may_be_packed_or_not_or_both():
    body = field(1, 0, varint(300)) + block(1, varint(1) + varint(2**32 - 1)) + field(1, 0, varint(0))
    message = block(1, body)
    assert LAYOUT.read(message) == (0, [300, 1, 2**32 - 1, 0], 0, 0, 0, 0, "") == oracle(message)


def test_an_empty_chunk_is_a_chunk():
    assert LAYOUT.read(block(1, b"")) == (0, [], 0, 0, 0, 0, "")


def test_unknown_fields_are_skipped_wherever_they_are():
    unknown = [field(90, 0, varint(7)), field(91, 1, bytes(8)), block(92, b"later"), field(93, 5, bytes(4))]
    known = block(1, varint(5)) + field(7, 0, varint(2))
    for extra in unknown:
        for body in (extra + known, known + extra):
            for message in (block(1, body), extra + block(1, body), block(1, body) + extra):
                assert LAYOUT.read(message) == (2, [5], 0, 0, 0, 0, "") == oracle(message)


def test_the_last_of_a_repeated_scalar_counts_and_64_bits_are_cut_to_32():
    message = block(1, field(7, 0, varint(1)) + field(7, 0, varint(9)) + field(2, 0, varint(2**40 + 3)))
    assert LAYOUT.read(message) == (9, [], 3, 0, 0, 0, "") == oracle(message)


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


@given(st.binary(max_size=64))
@example(b"\x0a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(b"\x0a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x88\x80\x80\x80\x80\x10\x00")
def test_oversized_varints(message):
    VLLM.agrees(message)
    VLLM.agrees(block(1, message))


@pytest.mark.parametrize("value", [None, "text", 3])
def test_only_bytes_are_messages(value):
    with pytest.raises(TypeError):
        LAYOUT.read(value)


NUMBERS = {
    "chunk": 1,
    "complete": 2,
    "ids": 1,
    "prompt_tokens": 2,
    "completion_tokens": 3,
    "cached_tokens": 4,
    "index": 5,
    "cold": [6, 63],
}


class TestLayout:
    def test_what_a_contract_does_not_have_is_zero(self):
        assert Layout(**NUMBERS).read(block(1, field(9, 0, varint(3)))) == (0, [], 0, 0, 0, 0, "")

    def test_cold_fields_may_be_any_iterable(self):
        layout = Layout(**(NUMBERS | {"cold": iter([6])}))
        assert layout.read(block(1, block(6, b""))) is None
        assert layout.read(block(1, block(63, b""))) is not None

    @pytest.mark.parametrize(
        "changes",
        [
            {"chunk": 0},
            {"complete": 64},
            {"complete": 1},
            {"ids": 0},
            {"index": 4},
            {"label": 64},
            {"label": 5},
            {"request_id": 2},
            {"reasoning_tokens": 1},
            {"cold": [0]},
            {"cold": [64]},
            {"cold": [-1]},
            {"cold": [2**70]},
            {"cold": [1]},
            {"cold": [6, 6]},
        ],
        ids=str,
    )
    def test_fields_have_different_numbers_from_1_to_63(self, changes):
        with pytest.raises(ValueError, match="different numbers from 1 to 63"):
            Layout(**(NUMBERS | changes))

    @pytest.mark.parametrize("changes", [{"ids": "1"}, {"ids": None}, {"cold": 5}, {"cold": ["x"]}], ids=str)
    def test_numbers_are_ints(self, changes):
        with pytest.raises(TypeError):
            Layout(**(NUMBERS | changes))

    @pytest.mark.parametrize("number", [-1, 2**32])
    def test_numbers_beyond_32_bits(self, number):
        with pytest.raises(OverflowError):
            Layout(**(NUMBERS | {"ids": number}))

    def test_every_field_is_named(self):
        with pytest.raises(TypeError):
            Layout(1, 2, 1, 2, 3, 4, 5)
        with pytest.raises(TypeError):
            Layout(**{name: value for name, value in NUMBERS.items() if name != "index"})
