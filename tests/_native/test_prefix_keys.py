"""Prompts as chains of block hashes (spec routing 2.3, 10.3)."""

import struct
from array import array
from collections import Counter
from math import isqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.hashes import xxh3_64
from smg._native.prefix_keys import LADDER, SEED, PrefixKeys, block_hash, chain_hash

ids = st.lists(st.integers(0, 2**32 - 1), max_size=70)


def cuts(size: int) -> list[int]:
    """Ends of the ladder's whole blocks in a text of ``size`` bytes."""
    ends, at = [], 0
    for count, width in LADDER:
        for _ in range(count or size):
            if at + width > size:
                return ends
            at += width
            ends.append(at)
    return ends


@given(ids=ids, block=st.integers(1, 20), salt=st.integers(0, 2**64 - 1))
def test_tokens_chain_whole_blocks(ids, block, salt):
    keys = PrefixKeys.of_tokens(ids, block, salt)
    wanted, prefix = [], None
    for start in range(0, len(ids) - block + 1, block):
        content = block_hash(ids[start : start + block])
        prefix = content if prefix is None else chain_hash(prefix, content)
        wanted.append(prefix ^ salt)
    assert keys.tolist() == wanted
    assert (keys.count, len(keys), keys.units, keys.block) == (len(wanted), len(wanted), len(ids), block)
    assert [keys.covered(depth) for depth in range(keys.count + 1)] == [block * depth for depth in range(len(keys) + 1)]


CONSTANTS = [isqrt(prime << 128) & (2**64 - 1) | 1 for prime in (2, 3, 5, 7, 11, 13)]


def fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & (2**64 - 1)


def text_key(block: bytes, before: int) -> int:
    """The key of a text's block after those whose key is ``before``, in plain Python."""
    words = struct.unpack(f"<{len(block) // 8}Q", block)
    if len(block) == 16:
        content = fold(words[0] ^ CONSTANTS[0], words[1] ^ CONSTANTS[1])
    else:
        lanes = CONSTANTS[:4]
        for at in range(0, len(words), 8):
            pairs = zip(words[at : at + 8 : 2], words[at + 1 : at + 8 : 2], strict=True)
            lanes = [fold(one ^ lane, two ^ CONSTANTS[4]) for lane, (one, two) in zip(lanes, pairs, strict=True)]
        content = fold(lanes[0] ^ CONSTANTS[4], lanes[1] ^ CONSTANTS[5])
        content ^= fold(lanes[2] ^ CONSTANTS[4], lanes[3] ^ CONSTANTS[0])
    return fold(content ^ CONSTANTS[2], before ^ CONSTANTS[5]) ^ content


@pytest.mark.parametrize("size", [16, 128 + 64, 640 + 256])
def test_every_bit_of_a_text_changes_about_half_of_its_key(size):
    """In a block of each size, and the more so in what comes after it."""
    text = bytearray(b"What the sea says to the shore, nobody has written down yet. " * 16)[:size]
    plain = PrefixKeys.of_text(bytes(text)).tolist()[-1]
    changed = []
    for bit in range(8 * size):
        text[bit // 8] ^= 1 << bit % 8
        changed.append((PrefixKeys.of_text(bytes(text)).tolist()[-1] ^ plain).bit_count())
        text[bit // 8] ^= 1 << bit % 8
    assert min(changed) >= 8
    assert 31 < sum(changed) / len(changed) < 33


def test_texts_that_differ_little_have_keys_of_their_own():
    texts = [f"{number:016}{'x' * 48}" for number in range(50_000)]
    keys = [PrefixKeys.of_text(text).tolist() for text in texts]
    assert all(len({key[at] for key in keys}) == len(texts) for at in range(4))
    # The first bits choose the shard: all are used alike.
    shards = Counter(key[0] >> 58 for key in keys)
    assert len(shards) == 64
    assert max(shards.values()) < 1.25 * len(keys) / 64


@given(size=st.integers(0, 3000), salt=st.integers(0, 2**64 - 1))
def test_text_climbs_the_ladder(size, salt):
    text = ("Grüße, 你好, " * 300).encode()[:size]
    keys = PrefixKeys.of_text(text, salt)
    wanted, prefix, at = [], 0, 0
    for end in cuts(size):
        prefix = text_key(text[at:end], prefix)
        wanted.append(prefix ^ salt)
        at = end
    assert keys.tolist() == wanted
    assert (keys.units, keys.block) == (size, 0)
    assert [keys.covered(depth) for depth in range(keys.count + 1)] == [0, *cuts(size)]


def test_the_ladder_is_8_times_16_then_8_times_64_then_256_bytes():
    assert [PrefixKeys.of_text("x" * size).count for size in (15, 16, 128, 191, 192, 640, 895, 896, 2035)] == [
        0, 1, 8, 8, 9, 16, 16, 17, 21,
    ]  # fmt: skip


def test_str_and_its_utf_8_are_the_same_text():
    text = "Grüße, 你好, " * 40
    assert PrefixKeys.of_text(text, 5).tolist() == PrefixKeys.of_text(text.encode(), 5).tolist()


def test_equal_beginnings_have_equal_keys_and_nothing_after_a_difference_has():
    one, other = list(range(64)), [*range(32), 99, *range(33, 64)]
    first, second = PrefixKeys.of_tokens(one).tolist(), PrefixKeys.of_tokens(other).tolist()
    assert first[:2] == second[:2]
    assert not set(first[2:]) & set(second)


def test_salts_and_adapters_keep_prompts_apart():
    plain = PrefixKeys.of_tokens(range(32)).tolist()
    assert not set(plain) & set(PrefixKeys.of_tokens(range(32), salt=1).tolist())
    assert not set(plain) & set(PrefixKeys.of_tokens(range(32), adapter=1).tolist())


def test_any_sequence_of_ids_will_do():
    assert PrefixKeys.of_tokens(tuple(range(32))).tolist() == PrefixKeys.of_tokens(list(range(32))).tolist()


@pytest.mark.parametrize("count", [0, 15, 16, 40, 40_000])
def test_arrays_have_the_keys_of_lists(count):
    ids = [3 * number for number in range(count)]
    keys = PrefixKeys.of_tokens(array("I", ids), 16, 7, 9)
    assert keys.tolist() == PrefixKeys.of_tokens(ids, 16, 7, 9).tolist()
    assert (keys.units, keys.block) == (count, 16)


def test_long_prompts_hash_the_same_without_the_gil():
    long = list(range(40_000))
    assert PrefixKeys.of_tokens(long).tolist()[:100] == PrefixKeys.of_tokens(long[:1600]).tolist()
    assert PrefixKeys.of_text("ab" * 20_000).tolist()[:20] == PrefixKeys.of_text("ab" * 20_000).tolist()[:20]


def test_every_size_of_int_is_read_right():
    ids = [0, 1, 2**15, 2**30 - 1, 2**30, 2**31, 2**32 - 1, True]
    data = b"".join(int(value).to_bytes(4, "little") for value in ids)
    assert PrefixKeys.of_tokens(ids, len(ids)).tolist() == [xxh3_64(data, SEED)]


@pytest.mark.parametrize("bad", [-1, -(2**29), 2**32, 2**80])
def test_what_is_no_token_id_is_refused(bad):
    with pytest.raises((ValueError, OverflowError)):
        PrefixKeys.of_tokens([1, bad], 1)


def test_what_is_no_prompt_is_refused():
    with pytest.raises(ValueError, match="0 tokens"):
        PrefixKeys.of_tokens([1], 0)
    with pytest.raises(TypeError):
        PrefixKeys.of_tokens(["a"], 1)
    with pytest.raises(TypeError, match="str or UTF-8"):
        PrefixKeys.of_text(7)
    with pytest.raises(UnicodeEncodeError):
        PrefixKeys.of_text("\ud800" * 20)
    with pytest.raises(TypeError, match="of_tokens"):
        PrefixKeys()
    with pytest.raises(IndexError):
        PrefixKeys.of_tokens(range(32)).covered(3)
