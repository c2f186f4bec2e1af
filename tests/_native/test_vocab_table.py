"""The id to bytes table: same answers as the decoder it was built from, and damaged memory is refused."""

import gc
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.vocab_table import VocabTable


class Listed:
    """A decoder over lists."""

    def __init__(self, inner: list[bytes], first: dict[int, bytes], special: set[int]) -> None:
        self.size = len(inner)
        self._inner, self._first, self._special = inner, first, special

    def token_bytes(self, token: int) -> bytes:
        return self._inner[token] if 0 <= token < self.size else b""

    def first_bytes(self, token: int) -> bytes:
        return self._first.get(token, self.token_bytes(token))

    def is_special(self, token: int) -> bool:
        return token in self._special


SMALL = Listed([b"a", b" b", b"", b"<|x|>"], {1: b"b"}, {3})


@given(st.lists(st.binary(max_size=6), max_size=20), st.data())
def test_answers_as_the_decoder(inner, data):
    known = range(len(inner))
    first = {token: data.draw(st.binary(max_size=4)) for token in known if data.draw(st.booleans())}
    decoder = Listed(inner, first, {token for token in known if data.draw(st.booleans())})
    table = VocabTable(VocabTable.of(decoder).tobytes())
    assert table.size == decoder.size
    for token in [*range(-2, len(inner) + 2), 2**31, 2**40, -(2**40)]:
        assert table.token_bytes(token) == decoder.token_bytes(token)
        assert table.first_bytes(token) == decoder.first_bytes(token)
        assert table.is_special(token) == decoder.is_special(token)


def test_one_table_for_each_decoder_which_does_not_outlive_it():
    class Weak(Listed):
        pass

    decoder = Weak([b"a"], {}, set())
    table = VocabTable.of(decoder)
    assert VocabTable.of(decoder) is table
    assert VocabTable.of(table) is table
    del decoder
    gc.collect()
    assert VocabTable.of(Weak([b"b"], {}, set())).token_bytes(0) == b"b"


def test_memory_is_read_in_place():
    memory = bytearray(VocabTable.of(SMALL).tobytes())
    table = VocabTable(memory)
    assert table.token_bytes(0) == b"a"
    memory[memory.rindex(b"a b")] = ord("z")
    assert table.token_bytes(0) == b"z"
    with pytest.raises(BufferError):
        memory.append(0)


def damaged() -> dict[str, bytes]:
    good = VocabTable.of(SMALL).tobytes()

    def with_number(at: int, value: int) -> bytes:
        return good[:at] + struct.pack("=I", value) + good[at + 4 :]

    return {
        "empty": b"",
        "header only": good[:32],
        "another magic": b"X" + good[1:],
        "cut": good[:-1],
        "longer": good + b"\0",
        "size": with_number(8, 5),
        "huge size": with_number(8, 2**32 - 1),
        "firsts": with_number(12, 2),
        "more firsts than tokens": with_number(12, 9),
        "blob": with_number(16, 2**31),
        "first offset": with_number(32, 1),
        "falling offsets": with_number(36, 9),
        "last offset": with_number(32 + 4 * 5, 2**31),
    }


@pytest.mark.parametrize("name", damaged())
def test_damaged_memory_is_refused(name):
    with pytest.raises(ValueError, match=r"not a vocabulary table|damaged"):
        VocabTable(damaged()[name])


def test_memory_that_is_not_aligned_is_refused():
    good = VocabTable.of(SMALL).tobytes()
    with pytest.raises(ValueError, match="not a vocabulary"):
        VocabTable(memoryview(b"x" + good)[1:])
