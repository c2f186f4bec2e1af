"""Prompts as chains of block hashes (spec routing 2.3, 10.3)."""

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


@given(size=st.integers(0, 3000), salt=st.integers(0, 2**64 - 1))
def test_text_climbs_the_ladder(size, salt):
    text = ("Grüße, 你好, " * 300).encode()[:size]
    keys = PrefixKeys.of_text(text, salt)
    wanted, prefix, at = [], None, 0
    for end in cuts(size):
        content = xxh3_64(text[at:end])
        prefix = content if prefix is None else chain_hash(prefix, content)
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
