"""The encode cache: published hash vectors, never a wrong answer, exact bounds, least recently used first."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.encode_cache import EncodeCache, find_ids

MASK = 2**64 - 1
KEY = bytes(range(16))


def model_siphash(secret: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with 128 bits, word by word as its paper describes it."""

    def rounds(v: list[int], count: int) -> None:
        def turn(value: int, bits: int) -> int:
            return (value << bits | value >> (64 - bits)) & MASK

        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = turn(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    k0, k1 = (int.from_bytes(half, "little") for half in (secret[:8], secret[8:]))
    constants = [int.from_bytes(b"somepseudorandomlygeneratedbytes"[at : at + 8], "big") for at in range(0, 32, 8)]
    v = [k ^ constant for k, constant in zip((k0, k1, k0, k1), constants, strict=True)]
    v[1] ^= 0xEE
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
    out = b""
    for index, constant in ((2, 0xEE), (1, 0xDD)):
        v[index] ^= constant
        rounds(v, 4)
        out += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return out


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_the_hash_gives_the_published_vectors(size, digest):
    assert EncodeCache(0, secret=KEY).digest(bytes(range(size))).hex() == digest


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=70))
def test_the_hash_equals_the_model(secret, data):
    assert EncodeCache(0, secret=secret).digest(data) == model_siphash(secret, data)


def test_the_secret_is_random_unless_given():
    assert EncodeCache(0).digest(b"x") != EncodeCache(0).digest(b"x")
    with pytest.raises(ValueError, match="16 bytes"):
        EncodeCache(0, secret=b"short")


def test_texts_are_told_apart_by_flag_and_content():
    cache = EncodeCache(10_000)
    cache.put("hé", False, [1, 2])
    cache.put("hé", True, [0, 1, 2])
    cache.put("", False, [])
    assert (cache.get("hé"), cache.get("hé", True), cache.get("")) == ([1, 2], [0, 1, 2], [])
    assert (cache.get("", True), cache.get("h"), cache.get("hé\0")) == (None, None, None)
    assert (cache.hits, cache.misses, len(cache)) == (3, 3, 3)


def test_long_texts_hash_outside_the_interpreter_lock_and_alike():
    cache, text = EncodeCache(10_000_000), "é" * 100_000
    cache.put(text, False, list(range(1000)))
    assert cache.get(text) == list(range(1000))
    assert cache.get(text + "x") is None


# Beginnings of a few texts that share much: each character is a segment and its ids are its code points, twice.
TEXTS = st.text("ab", max_size=12)


def ids_of(text: str) -> list[int]:
    return [code for char in text for code in (ord(char), ord(char) + 1000)][: 2 * len(text)]


@settings(max_examples=200)
@given(
    st.integers(0, 1500),
    st.integers(0, 6),
    st.lists(st.tuples(st.sampled_from(["put", "get", "extend", "longest"]), TEXTS, st.integers(1, 3)), max_size=40),
)
def test_never_a_wrong_answer_and_never_above_the_bounds(max_bytes, max_entries, operations):
    cache = EncodeCache(max_bytes, max_entries)
    for operation, text, step in operations:
        cuts = list(range(0, len(text) + 1, step))
        if operation == "put":
            cache.put(text, True, ids_of(text))
        elif operation == "get":
            assert cache.get(text, True) in (None, ids_of(text))
        elif operation == "extend":
            cache.extend(text.encode(), cuts, [2 * cut for cut in cuts], ids_of(text))
        else:
            found = cache.longest(text.encode(), cuts)
            assert found is None or found[1] == ids_of(text[: cuts[found[0]]])
        assert cache.nbytes <= max_bytes
        assert not max_entries or len(cache) <= max_entries
        assert (cache.nbytes == 0) == (len(cache) == 0)


@given(TEXTS, TEXTS)
def test_the_longest_common_cut_is_found(stored, asked):
    cache = EncodeCache(100_000)
    cache.extend(stored.encode(), range(1, len(stored) + 1), [2 * n for n in range(1, len(stored) + 1)], ids_of(stored))
    shared = next((n for n in range(len(stored), 0, -1) if asked.startswith(stored[:n])), 0)
    found = cache.longest(asked.encode(), range(1, len(asked) + 1))
    assert found == ((shared - 1, ids_of(asked[:shared])) if shared else None)


def test_a_growing_conversation_is_kept_once():
    grown, repeated = EncodeCache(10**9), EncodeCache(10**9)
    text = "turn of the conversation. " * 40
    cuts = [26 * turn for turn in range(1, 41)]
    ids = list(range(40 * 100))
    for turn in range(1, 41):
        counts = [100 * number for number in range(1, turn + 1)]
        grown.extend(text.encode(), cuts[:turn], counts, ids[: 100 * turn])
        repeated.put(text[: cuts[turn - 1]], False, ids[: 100 * turn])
    assert grown.longest(text.encode(), cuts) == (39, ids)
    assert grown.nbytes < repeated.nbytes / 10


def test_the_least_recently_used_goes_first_and_a_parent_after_its_children():
    cache = EncodeCache(10**6, max_entries=3)
    cache.extend(b"abc", [1, 2, 3], [1, 2, 3], [10, 11, 12])
    # Using the whole does not make the beginnings older than it.
    assert cache.longest(b"abc", [1, 2, 3]) == (2, [10, 11, 12])
    cache.put("x", True, [7])
    assert cache.longest(b"abc", [1, 2, 3]) == (1, [10, 11])
    cache.put("y", True, [8])
    assert (cache.get("x", True), cache.evictions) == (None, 2)
    assert cache.longest(b"abc", [1, 2, 3]) == (1, [10, 11])


def test_a_chain_longer_than_the_bound_keeps_its_beginning():
    cache = EncodeCache(10**6, max_entries=2)
    cache.extend(b"abcd", [1, 2, 3, 4], [1, 2, 3, 4], [10, 11, 12, 13])
    assert cache.longest(b"abcd", [1, 2, 3, 4]) == (1, [10, 11])


def test_what_is_larger_than_the_bound_is_not_kept_and_drives_nothing_out():
    cache = EncodeCache(1000)
    cache.put("small", False, [1])
    cache.put("large", False, list(range(1000)))
    assert (cache.get("large"), cache.get("small")) == (None, [1])
    nothing = EncodeCache(0)
    nothing.put("a", False, [1])
    assert (nothing.get("a"), nothing.nbytes) == (None, 0)


@pytest.mark.parametrize(
    ("cuts", "counts"),
    [([2, 1], [1, 1]), ([4], [1]), ([-1], [1]), ([1], [4]), ([1, 2], [2, 1]), ([1], []), ([1], [-1])],
)
def test_cuts_and_counts_must_ascend_and_lie_inside(cuts, counts):
    cache = EncodeCache(10**6)
    with pytest.raises(ValueError, match=r"ascend|do not fit"):
        cache.extend(b"abc", cuts, counts, [1, 2, 3])
    assert len(cache) == 0


@pytest.mark.parametrize("ids", [[2**31], [1, None], ["a"]])
def test_what_is_no_id_is_refused(ids):
    cache = EncodeCache(10**6)
    with pytest.raises((OverflowError, TypeError)):
        cache.put("a", False, ids)
    with pytest.raises((OverflowError, TypeError)):
        cache.extend(b"a", [1], [1], ids)
    assert len(cache) == 0


def test_unpaired_surrogates_have_no_utf8_form():
    cache = EncodeCache(10**6)
    for call in (lambda: cache.get("\ud800"), lambda: cache.put("\ud800", False, [1])):
        with pytest.raises(UnicodeEncodeError):
            call()


def test_threads_share_a_small_cache_without_wrong_answers():
    cache, wrong = EncodeCache(4000), []

    def work(seed: int) -> None:
        for number in range(2000):
            text = chr(97 + (number * seed) % 23) * (1 + number % 5)
            if cache.get(text, True) not in (None, ids_of(text)):
                wrong.append(text)
            cache.put(text, True, ids_of(text))
            cuts = range(1, len(text) + 1)
            cache.extend(text.encode(), cuts, [2 * cut for cut in cuts], ids_of(text))
            found = cache.longest(text.encode(), cuts)
            if found is not None and found[1] != ids_of(text[: found[0] + 1]):
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 5, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 0 < cache.nbytes <= 4000


@given(st.lists(st.integers(-2, 40), max_size=60), st.sets(st.integers(0, 30)))
def test_wanted_ids_are_found(ids, wanted):
    flags = bytes(1 if token in wanted else 0 for token in range(31))
    assert find_ids(ids, flags) == [at for at, token in enumerate(ids) if token in wanted]
