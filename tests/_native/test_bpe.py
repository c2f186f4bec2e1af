"""The native encoder against a model in plain Python (DESIGN 5)."""

import array
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.bpe import ByteBpe
from smg._native.bpe_tables import pack
from smg._native.word_split import words as split
from smg.text.bpe.classes import classes
from tests._native.bpe_model import merged

# Ids of bytes are not the bytes themselves, and some ids lie beyond 16 bits.
BYTES = [(byte * 7 + 3) % 256 for byte in range(256)]


def made(seed: int, count: int = 60, alphabet: bytes = b"ab c\n") -> list[tuple[int, int, int]]:
    """Merges of random symbols, longer and longer."""
    rng = random.Random(seed)
    symbols = [BYTES[byte] for byte in alphabet]
    merges = {}
    for number in range(count):
        pair = rng.choice(symbols), rng.choice(symbols)
        if pair not in merges:
            merges[pair] = 70_000 + number
            symbols.append(merges[pair])
    return [(left, right, both) for (left, right), both in merges.items()]


def packed(merges, words=None, kind: int = 1) -> bytes:
    return pack(BYTES, array.array("i", chain.from_iterable(merges)).tobytes(), words, classes(), kind, 3)


def encoder(merges, words=None, kind: int = 1) -> ByteBpe:
    return ByteBpe(packed(merges, words, kind))


def model(text: str, merges, words=None) -> list[int]:
    out: list[int] = []
    for word in split(classes(), 1, 3, text):
        whole = (words or {}).get(word.encode())
        out += merged(word.encode(), BYTES, merges) if whole is None else [whole]
    return out


@given(text=st.text(st.sampled_from("ab c\n1é"), max_size=300), seed=st.integers(0, 20))
def test_ids_are_the_models(text, seed):
    merges = made(seed)
    assert encoder(merges).encode(text.encode(), []) == model(text, merges)


@given(texts=st.lists(st.text(st.sampled_from("ab c"), max_size=100), max_size=8))
def test_remembered_words_change_nothing(texts):
    merges = made(3)
    bpe = encoder(merges)
    for text in [*texts, *texts]:
        assert bpe.encode(text.encode(), []) == model(text, merges)


@pytest.mark.parametrize("size", [62, 63, 64, 65, 66, 127, 128, 129, 700])
@pytest.mark.parametrize("alphabet", ["a", "ab", "abc"])
def test_words_of_any_length(size, alphabet):
    merges = made(5, alphabet=alphabet.encode())
    rng = random.Random(size)
    word = "".join(rng.choice(alphabet) for _ in range(size))
    bpe = encoder(merges)
    assert bpe.encode(word.encode(), []) == merged(word.encode(), BYTES, merges)
    assert bpe.encode(word.encode(), []) == merged(word.encode(), BYTES, merges)


def test_a_long_run_takes_no_quadratic_time():
    # A megabyte in one word: a search per merge would take hours, not a moment.
    merges = [(BYTES[97], BYTES[97], 300), (300, 300, 301), (301, 301, 302)]
    assert list(encoder(merges).encode(b"a" * (1 << 20), [])) == [302] * (1 << 17)


def test_more_words_than_can_be_remembered():
    rng = random.Random(9)
    merges = made(9, 200, b"abcdefgh ")
    bpe = encoder(merges)
    words = ["".join(rng.choice("abcdefgh") for _ in range(rng.randrange(1, 30))) for _ in range(90_000)]
    text = " ".join(words)
    first = bpe.encode(text.encode(), [])
    assert bpe.encode(text.encode(), []) == first
    some = " ".join(words[-300:])
    assert bpe.encode(some.encode(), []) == model(some, merges)


def test_words_taken_whole_are_not_merged():
    words = {b"ab": 500, b" ab": 501, b"": 502}
    merges = [(BYTES[97], BYTES[98], 300), (BYTES[32], 300, 400)]
    text = "ab ab abab"
    assert encoder(merges, words).encode(text.encode(), []) == [500, 501, 400, 300]


def test_of_two_equal_merges_the_last_counts():
    a, b = BYTES[97], BYTES[98]
    merges = [(a, b, 300), (b, a, 301), (a, b, 302)]
    # (a, b) now has the rank 2, so (b, a) is merged first.
    assert encoder(merges).encode(b"aba", []) == [a, 301]


def test_marks_cut_words_and_leave_their_ids():
    merges = [(BYTES[97], BYTES[97], 300)]
    bpe = encoder(merges)
    assert bpe.encode(b"aa<>aa", [(2, 4, 999)]) == [300, 999, 300]
    assert bpe.encode(b"a<>a", [(1, 3, -1)]) == [BYTES[97], BYTES[97]]
    assert bpe.encode(b"<><>", [(0, 2, 7), (2, 4, 8)]) == [7, 8]


@pytest.mark.parametrize("marks", [[(1, 0, 5)], [(0, 9, 5)], [(0, 2, 5), (1, 3, 6)], [(-1, 1, 5)]])
def test_marks_that_do_not_fit_are_refused(marks):
    with pytest.raises(ValueError, match="added tokens"):
        encoder([]).encode(b"abc", marks)


def test_tables_of_the_wrong_size_are_refused():
    for arguments in ((BYTES[:-1], b"", None, classes()), (BYTES, b"123", None, classes()), (BYTES, b"", None, b"")):
        with pytest.raises(ValueError, match="wrong size"):
            pack(*arguments, 1, 3)


def test_threads_do_not_disturb_each_other():
    merges = made(11)
    bpe = encoder(merges)
    rng = random.Random(1)
    texts = ["".join(rng.choice("ab c") for _ in range(3000)) for _ in range(40)]
    expected = [bpe.encode(text.encode(), []) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: bpe.encode(text.encode(), []), texts * 5)) == expected * 5


def test_flags_tell_what_to_ask_the_library():
    bpe = encoder([])
    assert bpe.flags("plain, 日本 😀 и हिन".encode()) & 0x10 == 0
    assert bpe.flags("e\u0301".encode()) & 0x10
    assert bpe.flags("\ufb00".encode()) == 0  # a compatibility form: NFC keeps it
    assert bpe.flags("\u2126".encode()) & 0x10  # OHM SIGN becomes OMEGA
    assert bpe.flags("\u017f".encode()) & 0x20
