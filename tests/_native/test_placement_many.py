"""Placements of many workers in any order, against plain Python; and that what they keep is never out of date."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from smg._native.breaker import FAILED, Breakers
from smg._native.event_blocks import EventBlocks
from smg._native.placement import LOAD, PREFIX, SPREAD, Placement
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg._native.region import COMPUTED, STATUS, Region

READY, NOT_READY = 2, 3
BLOCK = 16
MANY = 200  # more than three groups of columns
PROCESSES = 4


@pytest.fixture(scope="module")
def fleet():
    """A region whose workers all hold 0 to 40 blocks of one prompt, in no order."""
    region = Region.create(PROCESSES, workers=MANY, series=8, snapshot_bytes=64)
    assert region.index is not None
    for slot in range(MANY):
        region.worker_set(slot, STATUS, READY)
        region.index.insert(PrefixKeys.of_tokens(range(held(slot) * BLOCK)), region.index.admit(slot))
    yield region
    region.close()


def held(slot: int) -> int:
    return (0, 0, 1, 3, 7, 8, 8, 8, 8, 9, 40)[slot * 37 % 11]


def runs() -> st.SearchStrategy[list[int]]:
    """Slots in pieces that follow each other, short and long ones, in any order."""
    piece = st.tuples(st.integers(0, MANY - 1), st.sampled_from([1, 1, 2, 7, 8, 9, 63, 64, 65, 150]))
    return st.lists(piece, min_size=1, max_size=8).map(
        lambda pieces: [slot for first, count in pieces for slot in range(first, min(first + count, MANY))]
    )


@settings(max_examples=150, deadline=None)
@given(slots=runs(), loads=st.randoms(use_true_random=False), rows=st.integers(0, PROCESSES), data=st.data())
def test_the_cheapest_of_many_is_the_one_plain_python_finds(fleet, slots, loads, rows, data):
    counts = {slot: [0, 0] for slot in slots}
    computed = {slot: loads.choice([0, 5, 70_000, 1 << 45]) for slot in slots}
    for process in range(PROCESSES):
        fleet.clear_process(process)
    for slot in counts:
        fleet.worker_set(slot, COMPUTED, computed[slot])
        for process in range(rows):
            requests, tokens = loads.choice([0, 0, 3, 40]), loads.choice([0, 1, 999, 1 << 30])
            fleet.inflight_add(process, slot, requests, tokens)
            counts[slot][0] += requests
            counts[slot][1] += tokens
    asked = data.draw(st.sampled_from([0, 1, 5, 8, 20, 50]), "blocks")
    threshold = data.draw(st.sampled_from([0.0, 0.25]), "threshold")
    turnover = data.draw(st.sampled_from([0.0, 0.7]), "turnover")
    start = data.draw(st.integers(0, 2 * len(slots)), "start")
    length = asked * BLOCK
    placement = Placement(fleet, slots)
    placement.survey()
    placement.match(fleet.index, PrefixKeys.of_tokens(range(length)))
    assert placement.requests() == [counts[slot][0] for slot in slots]
    assert placement.tokens() == [counts[slot][1] for slot in slots]
    assert placement.total() == sum(counts[slot][0] for slot in slots)
    assert placement.backlog() == sum(counts[slot][1] for slot in slots) / len(slots)
    hits = [min(held(slot), asked) * BLOCK for slot in slots]
    assert [placement.matched(at) for at in range(len(slots))] == hits

    share = 1024 * turnover * (len(slots) / sum(computed[slot] + 20_000 for slot in slots))
    cut = int(threshold * length)

    def price(at: int) -> tuple[int, int]:
        fresh = length - hits[at] if hits[at] > cut else length
        prefill = int(fresh * (1024 * 0.25 + share * (20_000 + computed[slots[at]])))
        return 1024 * counts[slots[at]][1] + 65_536 * counts[slots[at]][0] + prefill, (at - start) % len(slots)

    least = min(count for count, _ in counts.values())
    near = [at for at, slot in enumerate(slots) if not counts[slot][0] > max(least + 64, 1.5 * least)]
    best = min(near, key=price)
    spread = best != min(range(len(slots)), key=price)
    expected = best, SPREAD if spread else PREFIX if hits[best] > cut else LOAD
    assert placement.cheapest(length, 64.0, threshold, 64, 1.5, start, 0.25, turnover) == expected


def test_sums_below_nothing_count_as_nothing(fleet):
    for process in range(PROCESSES):
        fleet.clear_process(process)
    fleet.inflight_add(1, 5, -2, -300)
    fleet.inflight_add(2, 5, 1, 100)
    fleet.inflight_add(2, 6, 1, -100)
    for slots in ([5, 6], range(20)):
        placement = Placement(fleet, slots)
        placement.survey()
        at = list(slots).index(5)
        assert (placement.requests()[at : at + 2], placement.tokens()[at : at + 2]) == ([0, 1], [0, 0])
    assert (fleet.inflight(5), fleet.inflight(6)) == ((-1, -200), (1, -100))


SLOTS = 6
slot_of = st.integers(0, SLOTS - 1)


class Kept(RuleBasedStateMachine):
    """Whatever happens, a placement that has looked before sees what a new one sees."""

    @initialize()
    def start(self) -> None:
        self.region = Region.create(3, workers=SLOTS, series=8, snapshot_bytes=64)
        assert self.region.index is not None
        self.index: PrefixIndex = self.region.index
        self.breakers = Breakers(self.region, 1, 1, 3_600_000, 1000)
        for slot in range(SLOTS):
            self.region.worker_set(slot, STATUS, READY)
            self.index.admit(slot)
        self.kept = Placement(self.region, range(SLOTS))
        self.tokens = list(range(4 * BLOCK))
        self.names = 0

    def teardown(self) -> None:
        self.region.close()

    @rule(slot=slot_of, status=st.sampled_from([READY, READY, NOT_READY]))
    def status(self, slot, status):
        self.region.worker_set(slot, STATUS, status)

    @rule(slot=slot_of)
    def add_to_status(self, slot):
        self.region.worker_add(slot, STATUS, 1)

    @rule(slot=slot_of)
    def worker_is_replaced(self, slot):
        self.index.dismiss(slot)
        self.region.worker_reset(slot)
        self.index.admit(slot)
        self.region.worker_set(slot, STATUS, READY)

    @rule(slot=slot_of)
    def worker_leaves_the_index(self, slot):
        self.index.dismiss(slot)

    @rule(slot=slot_of)
    def breaker_opens(self, slot):
        self.breakers.leave(slot, 0, FAILED)

    @rule(slot=slot_of)
    def breaker_is_reset(self, slot):
        self.breakers.reset(slot)

    @rule(slot=slot_of)
    def request_finds_a_breaker(self, slot):
        self.breakers.enter(slot)

    @rule(slot=slot_of, blocks=st.integers(1, 4))
    def prompt_is_sent(self, slot, blocks):
        self.index.insert(PrefixKeys.of_tokens(self.tokens[: blocks * BLOCK]), self.index.ticket(slot))

    @rule(slot=slot_of, block=st.sampled_from([BLOCK, 2 * BLOCK]))
    def engine_tells(self, slot, block):
        told = EventBlocks(self.index, slot, block)
        told.store([self.names], self.tokens[:block])
        self.names += 1
        self.index.set_live(slot, block)

    @rule(slot=slot_of)
    def engine_tells_no_more(self, slot):
        self.index.set_live(slot, 0)

    @rule(process=st.integers(0, 2))
    def process_dies(self, process):
        self.region.clear_process(process)
        self.index.join(0)

    @rule(tried=st.sets(slot_of, max_size=2))
    def retry(self, tried):
        fresh = Placement(self.region, range(SLOTS))
        assert self.kept.survey(tried) == fresh.survey(tried)
        assert self.kept.numbers() == fresh.numbers()

    @invariant()
    def sees_what_a_new_one_sees(self):
        fresh = Placement(self.region, range(SLOTS))
        assert self.kept.survey() == fresh.survey()
        assert self.kept.numbers() == fresh.numbers()
        for keys in (PrefixKeys.of_tokens(self.tokens), PrefixKeys.of_text("x" * 64)):
            for placement in (self.kept, fresh):
                other = placement.match(self.index, keys)
                if other:
                    placement.match(self.index, PrefixKeys.of_tokens(self.tokens, other), primary=False)
            for at in range(fresh.ready):
                assert self.kept.matched(at) == fresh.matched(at)


TestKept = Kept.TestCase
TestKept.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
