"""Loads, prefixes and prices of all workers in one pass, against the same in plain Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.event_blocks import EventBlocks
from smg._native.placement import LOAD, PREFIX, SPREAD, Placement
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg._native.region import COMPUTED, QUEUED_TOKENS, STATUS, USAGE, Region

READY = 2
SLOTS = 6


@pytest.fixture
def region():
    made = Region.create(processes=4, workers=SLOTS, series=8, snapshot_bytes=64)
    for slot in range(SLOTS):
        made.worker_set(slot, STATUS, READY)
        made.index.admit(slot)
    yield made
    made.close()


def index_of(region: Region) -> PrefixIndex:
    assert region.index is not None
    return region.index


class TestSurvey:
    def test_counts_of_all_processes_are_summed(self, region):
        region.inflight_add(1, 2, 3, 100)
        region.inflight_add(2, 2, 1, 50)
        region.inflight_add(3, 5, 1, 7)
        placement = Placement(region, [5, 2, 0])
        assert placement.survey() == 3
        assert (placement.requests(), placement.tokens()) == ([1, 4, 0], [7, 150, 0])

    def test_only_ready_workers_have_a_position(self, region):
        for slot, status in ((0, 1), (2, 3), (4, 0)):
            region.worker_set(slot, STATUS, status)
        placement = Placement(region, range(SLOTS))
        assert placement.survey() == 3
        assert placement.numbers() == [1, 3, 5]
        assert [placement.number(position) for position in range(3)] == [1, 3, 5]

    def test_skipped_workers_have_none_and_come_back(self, region):
        placement = Placement(region, range(SLOTS))
        assert placement.survey([0, 5, 5]) == 4
        assert placement.numbers() == [1, 2, 3, 4]
        assert placement.survey() == SLOTS

    def test_a_dead_process_counts_no_more(self, region):
        region.inflight_add(2, 1, 5, 5)
        region.clear_process(2)
        placement = Placement(region, [1])
        placement.survey()
        assert (placement.requests(), placement.tokens()) == ([0], [0])

    def test_no_workers_at_all(self, region):
        placement = Placement(region, [])
        assert (len(placement), placement.survey()) == (0, 0)
        for choose in (lambda: placement.cheapest(1, 1, 0, 1, 1), lambda: placement.quickest(1, 1), placement.idlest):
            with pytest.raises(ValueError, match="no worker is ready"):
                choose()


class TestMatch:
    keys = PrefixKeys.of_tokens(range(64))

    def placement(self, region):
        made = Placement(region, range(SLOTS))
        made.survey()
        return made

    def matched(self, placement):
        return [placement.matched(position) for position in range(placement.ready)]

    def test_what_was_sent_counts_in_tokens(self, region):
        index_of(region).insert(PrefixKeys.of_tokens(range(40)), index_of(region).ticket(2))
        placement = self.placement(region)
        assert placement.match(index_of(region), self.keys) == 0
        assert self.matched(placement) == [0, 0, 32, 0, 0, 0]

    def test_text_counts_in_bytes(self, region):
        index_of(region).insert_text("x" * 200, 0, index_of(region).ticket(3))
        placement = self.placement(region)
        placement.match(index_of(region), PrefixKeys.of_text("x" * 300))
        assert self.matched(placement) == [0, 0, 0, 192, 0, 0]

    def test_a_live_worker_counts_by_what_its_engine_tells(self, region):
        index = index_of(region)
        for slot in (1, 2, 3):
            index.insert(self.keys, index.ticket(slot))
        told = EventBlocks(index, 2, 16)
        told.store([7], range(16))
        index.set_live(2, 16)
        EventBlocks(index, 3, 16)
        placement = self.placement(region)
        assert placement.match(index, self.keys) == 0
        assert self.matched(placement) == [0, 64, 16, 64, 0, 0]

    def test_blocks_of_another_size_are_asked_for_on_their_own(self, region):
        index = index_of(region)
        index.insert(self.keys, index.ticket(1))
        told = EventBlocks(index, 2, 32)
        told.store([7], range(32))
        index.set_live(2, 32)
        placement = self.placement(region)
        assert placement.match(index, self.keys) == 32
        assert placement.match(index, PrefixKeys.of_tokens(range(64), 32), primary=False) == 0
        assert self.matched(placement) == [0, 64, 32, 0, 0, 0]

    def test_survey_forgets_the_last_prompt(self, region):
        index_of(region).insert(self.keys, index_of(region).ticket(1))
        placement = self.placement(region)
        placement.match(index_of(region), self.keys)
        placement.survey()
        assert self.matched(placement) == [0] * SLOTS


@settings(max_examples=200, deadline=None)
@given(
    loads=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 5000), st.integers(0, 4), st.integers(0, 200_000)),
        min_size=1,
        max_size=SLOTS,
    ),
    blocks=st.integers(0, 4),
    threshold=st.sampled_from([0.0, 0.3, 0.5]),
    start=st.integers(0, 20),
    scale=st.sampled_from([1.0, 0.25]),
    turnover=st.sampled_from([0.0, 0.5]),
)
def test_the_cheapest_worker_is_the_one_plain_python_finds(loads, blocks, threshold, start, scale, turnover):
    region = Region.create(processes=2, workers=SLOTS, series=8, snapshot_bytes=64)
    index, count = index_of(region), len(loads)
    for slot, (requests, tokens, held, computed) in enumerate(loads):
        region.worker_set(slot, STATUS, READY)
        region.worker_set(slot, COMPUTED, computed)
        region.inflight_add(1, slot, requests, tokens)
        index.insert(PrefixKeys.of_tokens(range(held * 16)), index.admit(slot))
    placement = Placement(region, range(count))
    placement.survey()
    placement.match(index, PrefixKeys.of_tokens(range(blocks * 16)))
    length = blocks * 16
    position, why = placement.cheapest(length, 64.0, threshold, 20, 1.5, start, scale, turnover)

    least = min(load[0] for load in loads)
    mean = sum(load[3] + 20_000 for load in loads) / count

    def price(at: int) -> tuple[float, int]:
        requests, tokens, held, computed = loads[at]
        hit = min(held, blocks) * 16
        fresh = length - hit if hit > threshold * length else length
        weight = scale + turnover * (computed + 20_000) / mean
        # In the fractions of a token that prices are counted in.
        return 1024 * (tokens + 64 * requests) + int(1024 * fresh * weight), (at - start) % count

    near = [at for at in range(count) if not (loads[at][0] - least > 20 and loads[at][0] > 1.5 * least)]
    assert position == min(near, key=price)
    hit = min(loads[position][2], blocks) * 16
    spread = position != min(range(count), key=price)
    assert why == (SPREAD if spread else PREFIX if hit > threshold * length else LOAD)
    region.close()


def filled(region: Region, *usage: float) -> Placement:
    for slot, part in enumerate(usage):
        region.worker_set(slot, USAGE, round(part * 1_000_000))
    placement = Placement(region, range(len(usage)))
    placement.survey()
    return placement


def test_of_two_idle_workers_the_one_that_has_computed_less_lately_gets_what_is_new(region):
    region.worker_set(0, COMPUTED, 500_000)
    region.worker_set(1, COMPUTED, 300_000)
    placement = filled(region, 0.5, 0.5)
    assert placement.cheapest(1000, 64.0, 0.3, 64, 1.5) == (0, LOAD)
    assert placement.cheapest(1000, 64.0, 0.3, 64, 1.5, turnover=1.0) == (1, LOAD)


class TestFullCaches:
    def test_above_the_ceiling_nobody_is_sent_anything(self, region):
        placement = filled(region, 0.97, 0.5, 0.96)
        assert placement.avoid_full(1.0, 0.95) == 2
        assert placement.cheapest(16, 64.0, 0.3, 64, 1.5) == (1, SPREAD)

    def test_far_above_the_emptiest_neither(self, region):
        placement = filled(region, 0.9, 0.5, 0.6)
        assert placement.avoid_full(0.3, 1.0) == 1
        assert placement.cheapest(16, 64.0, 0.3, 64, 1.5)[0] == 1

    def test_when_all_are_full_none_is_avoided(self, region):
        placement = filled(region, 0.97, 0.98)
        assert placement.avoid_full(1.0, 0.95) == 0
        assert placement.cheapest(16, 64.0, 0.3, 64, 1.5) == (0, LOAD)

    def test_whoever_reports_nothing_is_not_full_and_no_measure(self, region):
        placement = filled(region, 0.0, 0.9, 0.8)
        assert placement.avoid_full(0.5, 1.0) == 0

    def test_when_the_others_are_overloaded_the_cheapest_of_all_has_it(self, region):
        region.inflight_add(1, 1, 99, 0)
        placement = filled(region, 0.97, 0.5)
        assert placement.avoid_full(1.0, 0.95) == 1
        assert placement.cheapest(16, 64.0, 0.3, 64, 1.5)[0] == 0

    def test_the_next_survey_forgets(self, region):
        placement = filled(region, 0.97, 0.5)
        placement.avoid_full(1.0, 0.95)
        placement.survey()
        assert placement.cheapest(16, 64.0, 0.3, 64, 1.5) == (0, LOAD)


@settings(max_examples=200, deadline=None)
@given(
    loads=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 500), st.integers(0, 500), st.integers(0, 1_100_000)),
        min_size=1,
        max_size=SLOTS,
    ),
    start=st.integers(0, 20),
)
def test_the_quickest_and_the_idlest_are_those_plain_python_finds(loads, start):
    region = Region.create(processes=2, workers=SLOTS, series=8, snapshot_bytes=64)
    count = len(loads)
    for slot, (requests, tokens, queued, usage) in enumerate(loads):
        region.worker_set(slot, STATUS, READY)
        region.inflight_add(1, slot, requests, tokens)
        region.worker_set(slot, QUEUED_TOKENS, queued)
        region.worker_set(slot, USAGE, usage)
    placement = Placement(region, range(count))
    placement.survey()

    def wait(at: int) -> tuple[float, int, int]:
        requests, tokens, queued, usage = loads[at]
        part = min(usage / 1e6, 0.999)
        return (queued + tokens) / 2000 + 0.15 * part / (1 - part), requests, (at - start) % count

    assert placement.quickest(2000, 0.15, start) == min(range(count), key=wait)
    assert placement.idlest(start) == min(range(count), key=lambda at: (loads[at][0], (at - start) % count))
    assert placement.total() == sum(load[0] for load in loads)
    assert [placement.load(at) for at in range(count)] == [load[0] for load in loads]
    region.close()


def test_a_number_is_found_again_at_its_position(region):
    region.worker_set(3, STATUS, 1)
    placement = Placement(region, [5, 3, 1, 0])
    placement.survey([2])
    assert [placement.position(number) for number in range(-1, 5)] == [-1, 0, -1, -1, 1, -1]


def test_what_does_not_exist_is_refused(region):
    with pytest.raises(IndexError):
        Placement(region, [SLOTS])
    placement = Placement(region, range(SLOTS))
    for skip in ([SLOTS], [-1]):
        with pytest.raises(IndexError):
            placement.survey(skip)
    placement.survey([0])
    for call in (placement.number, placement.matched, placement.load):
        for position in (-1, SLOTS - 1):
            with pytest.raises(IndexError):
                call(position)
