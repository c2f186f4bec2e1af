"""Ids as a list or, if they are many, as an array (field case PF-01)."""

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.encode_cache import EncodeCache, find_ids
from smg._native.id_list import LONG_IDS, are_ids, as_json, compact, joined

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=20)


def test_few_ids_stay_the_list_they_are():
    few = list(range(LONG_IDS - 1))
    assert compact(few) is few
    many = compact([*few, 2**32 - 1])
    assert isinstance(many, array)
    assert many.typecode == "I"
    assert list(many) == [*few, 2**32 - 1]
    assert compact(many) is many


@given(st.lists(st.integers() | st.integers(-2, 2) | st.integers(2**31 - 3, 2**31 + 3)))
def test_ids_are_ints_of_31_bits(ids):
    assert are_ids(ids) == all(0 <= token < 2**31 for token in ids)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_in_an_array_are_looked_at_too(ids):
    assert are_ids(array("I", ids)) == are_ids(tuple(ids)) == all(token < 2**31 for token in ids)


@pytest.mark.parametrize("no_int", ["1", None, 1.0])
def test_what_is_no_int_is_no_id(no_int):
    with pytest.raises(TypeError):
        are_ids([1, no_int])


@given(IDS, IDS, st.booleans(), st.booleans())
def test_lists_and_arrays_are_joined_alike(head, tail, head_array, tail_array):
    made = joined(array("I", head) if head_array else head, array("I", tail) if tail_array else tail)
    assert list(made) == head + tail


def test_two_lists_that_are_many_together_become_an_array():
    half = list(range(LONG_IDS // 2))
    assert isinstance(joined(half, half), array)
    assert type(joined(half, half[1:])) is list


@pytest.mark.parametrize("count", [LONG_IDS - 1, LONG_IDS, 3 * LONG_IDS])
@pytest.mark.parametrize("given_as", [list, lambda ids: array("I", ids)])
def test_what_is_remembered_comes_back_as_many_or_few(count, given_as):
    ids = [number % 70_000 for number in range(count)]
    cache = EncodeCache(1 << 20)
    cache.put("a text", False, given_as(ids))
    found = cache.get("a text")
    assert isinstance(found, array) is (count >= LONG_IDS)
    assert list(found) == ids
    data = b"beginning and rest"
    cache.extend(data, [9, 13], [5, count], given_as(ids))
    assert cache.longest(data, [9]) == (0, ids[:5])
    number, whole = cache.longest(data, [9, 13])
    assert (number, list(whole)) == (1, ids)


@given(IDS, st.binary(max_size=300))
def test_ids_are_found_in_arrays_as_in_lists(ids, wanted):
    ids += [0, 255, 2**31 - 1]
    assert find_ids(array("I", ids), wanted) == find_ids(ids, wanted)


@pytest.mark.parametrize("other", [array("Q", [1]), b"abcd", (1, 2)])
def test_other_sequences_are_not_remembered(other):
    with pytest.raises((ValueError, TypeError)):
        EncodeCache(1 << 20).put("a text", False, other)


@given(
    st.lists(
        st.integers(0, 10).map(lambda digits: 10**digits - 1).filter(lambda id: id < 2**32) | st.integers(0, 2**32 - 1)
    )
)
def test_ids_are_written_as_json(ids):
    assert as_json(array("I", ids)) == json.dumps(ids, separators=(",", ":")).encode()


def test_only_arrays_of_unsigned_ints_are_written():
    with pytest.raises(ValueError, match="mismatch"):
        as_json(array("Q", [1]))
