"""Whose item is next: requests take turns, the light go before the heavy, and nobody waits for ever."""

import pytest

from smg.vision.turns import Turns

LARGEST = 169_000_000
SMALL = 64 * 64


def drained(turns):
    out = []
    while turns:
        out.append(turns.take())
    return out


def test_requests_take_turns_and_their_lightest_item_is_first():
    turns = Turns()
    for weight in (30, 10, 20):
        turns.add("a", weight, f"a{weight}")
    for weight in (10, 20):
        turns.add("b", weight, f"b{weight}")
    assert drained(turns) == ["a10", "b10", "a20", "b20", "a30"]


def test_items_of_one_weight_keep_their_order():
    turns = Turns()
    for number in range(4):
        turns.add("a", 7, number)
    assert drained(turns) == [0, 1, 2, 3]


def test_a_small_item_goes_before_all_that_is_large():
    turns = Turns()
    for number in range(8):
        turns.add("one", LARGEST, number)
    for number in range(100):
        turns.add(number, LARGEST, "large")
    assert turns.take() == 0
    turns.add("late", SMALL, "small")
    assert turns.take() == "small"


def test_those_who_go_before_use_no_more_than_those_whose_turn_it_is():
    turns = Turns()
    for number in range(4):
        turns.add(("large", number), LARGEST, LARGEST)
    middle = LARGEST // 10
    work = {LARGEST: 0, middle: 0}
    for number in range(60):
        turns.add(("middle", number), middle, middle)  # there is always another one
        weight = turns.take()
        work[weight] += weight
        if work[LARGEST] == 4 * LARGEST:
            break
    assert work == {LARGEST: 4 * LARGEST, middle: 3 * LARGEST}  # ten of these after each of those but the last


def test_nothing_is_taken_where_nothing_waits():
    turns = Turns()
    turns.add("a", 1, "item")
    turns.take()
    assert not turns
    with pytest.raises(LookupError):
        turns.take()
