"""The running number of a response's events, as Python sees it."""

import pytest

from smg._native.counter import Counter


def test_numbers_follow_each_other_and_the_next_one_can_be_read_and_set():
    counter = Counter()
    assert [counter.take(), counter.take(), counter.value] == [0, 1, 2]
    counter.value = 40
    assert (counter.take(), counter.value) == (40, 41)
    assert Counter(7).take() == 7


def test_a_number_of_more_than_63_bits_is_refused():
    counter = Counter(2**63 - 1)
    assert counter.value == 2**63 - 1
    with pytest.raises(OverflowError):
        counter.value = 2**63
