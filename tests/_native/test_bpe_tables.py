"""Tables of a byte-level BPE in memory of any content: read in place, refused when damaged, never read beyond."""

import random
import struct

import pytest

from smg._native.bpe import ByteBpe
from smg._native.word_table import WordTable
from tests._native.test_bpe import made, packed

PAIRS_AT = 32 + 4 * 256 + 0x110000
PAIR = struct.Struct("=Qii")
TEXT = b"ab ca  bc\n aab cab c" + b"abc a" * 40 + b"ab" * 300

GOOD = packed(made(3), {b"ab": 500, b" ab": 501})


def test_tables_are_read_in_place_and_can_be_copied_out():
    memory = bytearray(GOOD)
    bpe = ByteBpe(memory)
    assert bpe.tobytes() == GOOD
    before = bpe.encode(b"x", [])
    struct.pack_into("=i", memory, 32 + 4 * ord("x"), 77)
    assert (before == [77], bpe.encode(b"xx", [])) == (False, [77, 77])
    with pytest.raises(BufferError):
        memory.append(0)


def damaged() -> dict[str, bytes]:
    def with_number(format: str, at: int, value: int) -> bytes:
        return GOOD[:at] + struct.pack(format, value) + GOOD[at + struct.calcsize(format) :]

    places = struct.unpack_from("=Q", GOOD, 16)[0]
    used = next(at for at in range(PAIRS_AT, len(GOOD), 16) if PAIR.unpack_from(GOOD, at)[0] != 2**64 - 1)
    pair = PAIR.unpack_from(GOOD, used)
    return {
        "empty": b"",
        "cut": GOOD[:-1],
        "longer": GOOD + b"\0",
        "another magic": b"X" + GOOD[1:],
        "unknown kind": with_number("=i", 8, 8),
        "kind below zero": with_number("=i", 8, -1),
        "digits below zero": with_number("=i", 12, -1),
        "no places": with_number("=Q", 16, 0),
        "other places": with_number("=Q", 16, places * 2),
        "places that overflow": with_number("=Q", 16, 2**60),
        "words that overflow": with_number("=Q", 24, 2**64 - 1),
        "a byte below zero": with_number("=i", 32, -5),
        "left below zero": with_number("=Q", used, pair[0] | 1 << 63),
        "right below zero": with_number("=Q", used, pair[0] | 1 << 31),
        "rank below zero": with_number("=i", used + 8, -1),
        "merged below zero": with_number("=i", used + 12, -1),
        "full": GOOD[:PAIRS_AT] + PAIR.pack(1, 1, 1) * places + GOOD[PAIRS_AT + 16 * places :],
        "words": GOOD.replace(b"SMGWORD1", b"SMGWORD2"),
    }


@pytest.mark.parametrize("name", damaged())
def test_damaged_memory_is_refused(name):
    with pytest.raises(ValueError, match="damaged"):
        ByteBpe(damaged()[name])


def test_memory_that_is_not_aligned_is_refused():
    with pytest.raises(ValueError, match="damaged"):
        ByteBpe(memoryview(b"x" + GOOD)[1:])


def test_any_flipped_byte_is_refused_or_does_no_harm():
    """Outside the classes of characters, which take a megabyte and any value."""
    rng = random.Random(6)
    places = [*range(PAIRS_AT - 0x110000), *range(PAIRS_AT, len(GOOD))]
    for _ in range(400):
        bad = bytearray(GOOD)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.choice(places)] = rng.randrange(256)
        try:
            bpe = ByteBpe(bad)
        except ValueError:
            continue
        ids = bpe.encode(TEXT, [(2, 3, 9)])
        assert 0 < len(ids) <= len(TEXT)
        assert min(ids) >= 0


def test_any_classes_do_no_harm():
    rng = random.Random(7)
    for kind in range(8):
        bad = bytearray(GOOD)
        struct.pack_into("=i", bad, 8, kind)
        bad[PAIRS_AT - 0x110000 : PAIRS_AT] = rng.randbytes(0x110000)
        bpe = ByteBpe(bad)
        assert bpe.encode(TEXT + "日本 e\u0301 😀 'ſ 123".encode(), [])
        assert 0 <= bpe.flags("日本 😀".encode()) <= 0xF0


def test_a_vocabulary_of_words_only():
    bpe = ByteBpe(packed([], {b"ab": 500}))
    assert bpe.encode(b"ab", []) == [500]
    assert WordTable(GOOD[GOOD.index(b"SMGWORD1") :]).get(b" ab") == 501
