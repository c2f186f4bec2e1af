"""A table of texts and ids: same answers as the dict it was packed from, and damaged memory is refused or harmless."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.word_table import WordTable

SMALL = WordTable.pack({b"a": 0, b"": 7, b"word": 2**31 - 1})


@given(
    st.dictionaries(st.binary(max_size=12), st.integers(0, 2**31 - 1), max_size=60), st.lists(st.binary(max_size=12))
)
def test_answers_as_the_dict(ids, others):
    table = WordTable(WordTable.pack(ids))
    for text in [*ids, *others]:
        assert table.get(text) == ids.get(text, -1)


def test_long_texts_that_differ_at_the_end():
    ids = {b"x" * size + bytes([byte]): 256 * size + byte for size in range(30) for byte in range(97, 123)}
    table = WordTable(WordTable.pack(ids))
    assert {text: table.get(text) for text in ids} == ids


@pytest.mark.parametrize("token", [-1, 2**31])
def test_ids_that_do_not_fit_are_refused(token):
    with pytest.raises((ValueError, OverflowError)):
        WordTable.pack({b"a": token})


def damaged() -> dict[str, bytes]:
    def with_number(format: str, at: int, value: int) -> bytes:
        return SMALL[:at] + struct.pack(format, value) + SMALL[at + struct.calcsize(format) :]

    used = next(at for at in range(32, len(SMALL), 16) if struct.unpack_from("=i", SMALL, at + 12)[0] >= 0)
    return {
        "empty": b"",
        "header only": SMALL[:32],
        "another magic": b"X" + SMALL[1:],
        "cut": SMALL[:-1],
        "longer": SMALL + b"\0",
        "no places": with_number("=Q", 8, 0),
        "places that are no power of two": with_number("=Q", 8, 17),
        "places that overflow": with_number("=Q", 8, 2**60),
        "more texts": with_number("=Q", 16, 2**63),
        "text outside": with_number("=I", used + 4, 100),
        "text that ends outside": with_number("=I", used + 8, 2**32 - 1),
        "full": SMALL[:32] + struct.pack("=IIIi", 0, 0, 0, 1) * 16 + SMALL[32 + 16 * 16 :],
    }


@pytest.mark.parametrize("name", damaged())
def test_damaged_memory_is_refused(name):
    with pytest.raises(ValueError, match="damaged"):
        WordTable(damaged()[name])


def test_memory_that_is_not_aligned_is_refused():
    with pytest.raises(ValueError, match="damaged"):
        WordTable(memoryview(b"x" + SMALL)[1:])


def test_any_flipped_byte_is_refused_or_does_no_harm():
    rng = random.Random(5)
    ids = {f"word {number}".encode(): number for number in range(300)}
    good = WordTable.pack(ids)
    for _ in range(2000):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            table = WordTable(bad)
        except ValueError:
            continue
        assert min(table.get(text) for text in ids) >= -1
        assert table.get(b"none of them") >= -1
