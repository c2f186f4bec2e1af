"""Circuit breakers in the region: when they open, whom they let through, and what decides (spec routing 4.4)."""

import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from smg._native import breaker
from smg._native.breaker import CLOSED, FAILED, HALF_OPEN, NEUTRAL, OPEN, REFUSED, SUCCEEDED, Breakers
from smg._native.placement import Placement
from smg._native.region import STATUS, Region

READY = 2
PAUSE, WINDOW = 1000, 10_000
T = 5_000_000  # some time, in milliseconds


@pytest.fixture
def region():
    region = Region.create(3, workers=8)
    yield region
    region.close()


@pytest.fixture
def breakers(region) -> Breakers:
    return Breakers(region, 3, 2, PAUSE, WINDOW)


def book(breakers: Breakers, outcomes: str, now: int = T, slot: int = 0) -> None:
    """One request after the other on a closed breaker: ``f`` fails, ``s`` succeeds, ``n`` is neither."""
    for outcome in outcomes:
        breakers.leave(slot, 0, {"f": FAILED, "s": SUCCEEDED, "n": NEUTRAL}[outcome], now)


def opened(breakers: Breakers, now: int = T) -> None:
    book(breakers, "fff", now)
    assert breakers.state(0) == OPEN


class TestOpening:
    def test_cb_enough_failures_in_a_row_open_it(self, breakers):
        book(breakers, "ff")
        assert (breakers.state(0), breakers.failures(0)) == (CLOSED, 2)
        assert breakers.leave(0, 0, FAILED, T) == (CLOSED, OPEN)
        assert breakers.enter(0, T) == REFUSED

    def test_cb_window_failures_that_alternate_with_successes_open_it_too(self, breakers):
        book(breakers, "sfsfs")
        assert breakers.state(0) == CLOSED
        book(breakers, "f")
        assert breakers.state(0) == OPEN

    def test_cb_window_few_failures_among_many_successes_do_not(self, breakers):
        book(breakers, "sssfsssfsssfsssf")
        assert breakers.state(0) == CLOSED

    def test_cb_window_old_failures_no_longer_count(self, breakers):
        book(breakers, "ff", T)
        book(breakers, "f", T + WINDOW + 1)
        assert (breakers.state(0), breakers.failures(0)) == (CLOSED, 1)
        book(breakers, "sf", T + 3 * WINDOW)
        book(breakers, "f", T + 4 * WINDOW + WINDOW // 2)
        assert breakers.state(0) == CLOSED

    def test_cb_429_what_is_neither_good_nor_bad_never_counts(self, breakers):
        book(breakers, "n" * 50)
        book(breakers, "fnfnn")
        assert (breakers.state(0), breakers.failures(0)) == (CLOSED, 2)

    def test_each_worker_has_its_own(self, breakers):
        opened(breakers)
        assert breakers.enter(1, T) == 0

    def test_one_process_opens_it_for_all(self, region, breakers):
        other = Breakers(Region.attach(region.fd), 3, 2, PAUSE, WINDOW)
        book(breakers, "ff")
        book(other, "f")
        assert breakers.state(0) == OPEN


class TestHalfOpen:
    def test_after_the_pause_a_bounded_number_may_try(self, breakers):
        opened(breakers)
        assert breakers.wait(0, T) == PAUSE
        assert breakers.enter(0, T + PAUSE - 1) == REFUSED
        permits = [breakers.enter(0, T + PAUSE) for _ in range(8)]
        assert sum(permit != REFUSED for permit in permits) == 2
        assert breakers.state(0) == HALF_OPEN

    def test_enough_successes_close_it(self, breakers):
        opened(breakers)
        first = breakers.enter(0, T + PAUSE)
        assert breakers.leave(0, first, SUCCEEDED, T + PAUSE) is None
        second = breakers.enter(0, T + PAUSE)
        assert breakers.leave(0, second, SUCCEEDED, T + PAUSE) == (HALF_OPEN, CLOSED)
        assert (breakers.enter(0, T + PAUSE), breakers.failures(0)) == (0, 0)

    def test_one_failure_opens_it_again(self, breakers):
        opened(breakers)
        first, second = breakers.enter(0, T + PAUSE), breakers.enter(0, T + PAUSE)
        breakers.leave(0, first, SUCCEEDED, T + PAUSE)
        assert breakers.leave(0, second, FAILED, T + PAUSE) == (HALF_OPEN, OPEN)
        assert breakers.enter(0, T + 2 * PAUSE - 1) == REFUSED

    def test_what_is_neither_gives_its_permit_back(self, breakers):
        opened(breakers)
        for _ in range(20):
            permit = breakers.enter(0, T + PAUSE)
            assert permit > 0
            breakers.leave(0, permit, NEUTRAL, T + PAUSE)
        assert breakers.state(0) == HALF_OPEN

    def test_requests_from_before_it_opened_decide_nothing(self, breakers):
        opened(breakers)
        permit = breakers.enter(0, T + PAUSE)
        book(breakers, "fsss", T + PAUSE)
        assert breakers.state(0) == HALF_OPEN
        assert breakers.leave(0, permit, SUCCEEDED, T + PAUSE) is None

    def test_a_permit_of_an_earlier_round_decides_nothing(self, breakers):
        opened(breakers)
        stale, bad = breakers.enter(0, T + PAUSE), breakers.enter(0, T + PAUSE)
        breakers.leave(0, bad, FAILED, T + PAUSE)
        fresh = breakers.enter(0, T + 2 * PAUSE)
        assert breakers.leave(0, stale, FAILED, T + 2 * PAUSE) is None
        assert breakers.leave(0, fresh, SUCCEEDED, T + 2 * PAUSE) is None
        assert breakers.state(0) == HALF_OPEN

    def test_permits_of_a_dead_process_are_given_out_anew(self, breakers):
        opened(breakers)
        assert all(breakers.enter(0, T + PAUSE) > 0 for _ in range(2))
        assert breakers.enter(0, T + 2 * PAUSE - 1) == REFUSED
        assert breakers.enter(0, T + 2 * PAUSE) > 0

    def test_right_after_a_reset_failures_do_not_count(self, breakers):
        breakers.reset(0, T)
        book(breakers, "f" * 20, T + 1999)
        assert (breakers.state(0), breakers.failures(0)) == (CLOSED, 0)
        book(breakers, "fff", T + 2000)
        assert breakers.state(0) == OPEN

    def test_a_reset_closes_it(self, breakers):
        opened(breakers)
        permit = breakers.enter(0, T + PAUSE)
        assert breakers.reset(0) == HALF_OPEN
        assert breakers.leave(0, permit, FAILED, T + PAUSE) is None
        assert (breakers.state(0), breakers.enter(0, T), breakers.failures(0)) == (CLOSED, 0, 0)


class TestRouting:
    """What a survey of the workers sees (it has the real time)."""

    def test_an_open_one_is_no_candidate_until_its_pause_is_over(self, region):
        breakers = Breakers(region, 1, 1, 100, WINDOW)
        for slot in (0, 1):
            region.worker_set(slot, STATUS, READY)
        placement = Placement(region, [0, 1])
        breakers.leave(0, 0, FAILED)
        assert (placement.survey(), placement.numbers()) == (1, [1])
        time.sleep(0.12)
        assert placement.survey() == 2
        permit = breakers.enter(0)
        assert placement.survey() == 1, "the only permit is taken"
        breakers.leave(0, permit, SUCCEEDED)
        assert placement.survey() == 2

    def test_a_slot_that_is_used_again_begins_closed(self, region, breakers):
        opened(breakers)
        region.worker_reset(0)
        assert (breakers.state(0), breakers.failures(0)) == (CLOSED, 0)


@pytest.mark.parametrize("numbers", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 101, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0)])
def test_numbers_out_of_range_are_refused(region, numbers):
    with pytest.raises(ValueError, match="must be between"):
        Breakers(region, *numbers)


def test_slots_that_do_not_exist_are_refused(breakers):
    for call in (breakers.enter, breakers.state, breakers.wait, breakers.failures, breakers.reset):
        with pytest.raises(IndexError):
            call(8)


class Model:
    """The same in plain Python."""

    def __init__(self) -> None:
        self.state, self.until, self.permits, self.good, self.round = CLOSED, 0, 0, 0, 0
        self.row: list[int] = []
        self.halves: dict[int, list[int]] = {}

    def enter(self, now: int) -> int:
        if self.state == CLOSED:
            return 0
        if self.state == HALF_OPEN and self.permits:
            self.permits -= 1
            return self.round + 1
        if now < self.until:
            return REFUSED
        self.state, self.until, self.permits, self.good = HALF_OPEN, now + PAUSE, 1, 0
        self.round = (self.round + 1) % 256
        return self.round + 1

    def leave(self, permit: int, outcome: int, now: int) -> None:
        if permit == 0:
            if self.state == CLOSED:
                self._book(outcome, now)
        elif self.state == HALF_OPEN and permit == self.round + 1:
            self.permits += 1
            self.good += outcome == SUCCEEDED
            if outcome == FAILED:
                self._open(now)
            elif self.good >= 2:
                self.state = CLOSED
                self.row, self.halves = [], {}

    def _open(self, now: int) -> None:
        self.state, self.until = OPEN, now + PAUSE
        self.row, self.halves = [], {}

    def _book(self, outcome: int, now: int) -> None:
        if outcome == NEUTRAL:
            return
        half = now // (WINDOW // 2)
        count = self.halves.setdefault(half, [0, 0])
        count[outcome == FAILED] += 1
        if outcome == SUCCEEDED:
            self.row = []
            return
        if self.row and now - self.row[-1] > WINDOW:
            self.row = []
        self.row.append(now)
        good, bad = (sum(self.halves.get(at, [0, 0])[which] for at in (half, half - 1)) for which in (0, 1))
        if len(self.row) >= 3 or (bad >= 3 and bad >= good):
            self._open(now)


class AgreesWithTheModel(RuleBasedStateMachine):
    permits = Bundle("permits")

    def __init__(self) -> None:
        super().__init__()
        self.region = Region.create(3, workers=1)
        self.breakers = Breakers(self.region, 3, 2, PAUSE, WINDOW)
        self.model = Model()
        self.now = T

    def teardown(self) -> None:
        self.region.close()

    @rule(passed=st.sampled_from([0, 1, PAUSE // 2, PAUSE, WINDOW // 2, WINDOW, 3 * WINDOW]))
    def time_passes(self, passed: int) -> None:
        self.now += passed

    @rule(target=permits)
    def enter(self) -> int:
        permit = self.breakers.enter(0, self.now)
        assert permit == self.model.enter(self.now)
        return permit

    @rule(permit=permits, outcome=st.sampled_from([FAILED, FAILED, NEUTRAL, SUCCEEDED]))
    def leave(self, permit: int, outcome: int) -> None:
        if permit != REFUSED:
            self.breakers.leave(0, permit, outcome, self.now)
            self.model.leave(permit, outcome, self.now)

    @precondition(lambda self: self.model.state == CLOSED)
    @rule(outcomes=st.lists(st.sampled_from([FAILED, SUCCEEDED]), min_size=1, max_size=5))
    def requests(self, outcomes: list[int]) -> None:
        for outcome in outcomes:
            self.breakers.leave(0, 0, outcome, self.now)
            self.model.leave(0, outcome, self.now)

    @invariant()
    def same_state(self) -> None:
        assert self.breakers.state(0) == self.model.state
        assert self.breakers.failures(0) == len(self.model.row)


AgreesWithTheModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgreesWithTheModel = AgreesWithTheModel.TestCase


def test_the_states_are_those_of_the_metric():
    assert (breaker.CLOSED, breaker.OPEN, breaker.HALF_OPEN) == (0, 1, 2)
