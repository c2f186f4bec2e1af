"""Cells that are known are added to as a model in Python does, in the region and elsewhere."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.region import Region
from smg._native.samples import Adding, Observing
from smg.telemetry.cells import COUNTER, LocalCells

LIMITS = (0, 1_000, 5_000, 2_000_000)
LABELS = st.tuples(st.sampled_from("ab"), st.sampled_from("cd"))
SECONDS = st.floats(-1, 3) | st.sampled_from([0.0, 0.001, 0.0010005, 0.0010015, 0.005, 2.0, 2.0000005, 1e6, -0.0])


class Counted(Adding):
    def find(self, labels):
        place = self.places[labels] = self.cells.find_series("/".join(labels).encode(), COUNTER)
        return place


class Observed(Observing):
    def find(self, labels, bucket):
        places = self.places.setdefault(labels, [None] * (len(self.limits) + 2))
        for place in (bucket, -1):
            places[place] = self.cells.find_series("/".join((*labels, str(place))).encode(), COUNTER)
        return places


@pytest.fixture(scope="module")
def region():
    with_cells = Region.create(processes=2, workers=1, series=256)
    yield with_cells
    with_cells.close()


def values(cells) -> dict[bytes, int]:
    return {key: value for key, _, value in cells.read_series()}


@given(st.lists(st.tuples(LABELS, st.integers(0, 2**40))))
def test_amounts_are_added_to_the_cell_of_their_labels(region, given_amounts):
    before, model = values(region), {}
    shared, local = Counted(region, 1), Counted(LocalCells(), 0)
    for labels, amount in given_amounts:
        shared.inc(*labels, amount=amount)
        local.inc(*labels, amount=amount)
        key = "/".join(labels).encode()
        model[key] = model.get(key, 0) + amount
    assert values(local.cells) == model
    assert {key: values(region)[key] - before.get(key, 0) for key in model} == model


@given(st.lists(st.tuples(SECONDS, LABELS)))
def test_seconds_are_counted_in_their_bucket_and_in_the_sum(region, observations):
    before, model = values(region), {}
    shared, local = Observed(region, 1, LIMITS), Observed(LocalCells(), 0, LIMITS)
    for seconds, labels in observations:
        shared.observe(seconds, *labels)
        local.observe(seconds, *labels)
        amount = round(seconds * 1_000_000) if seconds > 0 else 0
        for place, more in ((bisect_left(LIMITS, amount), 1), (-1, amount)):
            key = "/".join((*labels, str(place))).encode()
            model[key] = model.get(key, 0) + more
    assert values(local.cells) == model
    assert {key: values(region)[key] - before.get(key, 0) for key in model} == model


def test_one_is_added_where_nothing_else_is_said():
    counted = Counted(LocalCells(), 0)
    counted.inc("a", "c")
    counted.inc("a", "c")
    assert values(counted.cells) == {b"a/c": 2}


def test_a_cell_that_the_table_had_no_room_for_is_passed_over():
    region = Region.create(processes=1, workers=1, series=1)
    counted = Counted(region, 0)
    counted.inc("a", "c")
    counted.inc("b", "c")
    assert values(region) == {b"a/c": 1}
    region.close()
