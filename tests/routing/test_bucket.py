"""Policy bucket: prompts of like length share workers (spec routing 1.8)."""

import random
from collections import Counter

import pytest

from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.routing.candidates import Candidates
from smg.routing.policies.bucket import Bucket
from smg.routing.router import Query
from tests.routing.fleets import FakeFleet

WORKERS = [f"w{number}" for number in range(4)]


class Clock:
    now = 100.0


@pytest.fixture
def time(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(clock, "monotonic", lambda: made.now)
    return made


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"m": WORKERS})


class Buckets:
    def __init__(self, fleet: FakeFleet, **settings) -> None:
        self.fleet = fleet
        self.policy = Bucket(RoutingSettings(**settings), fleet.region)
        self.candidates = self.snapshot()

    def snapshot(self) -> Candidates:
        self.candidates = Candidates(list(self.fleet.workers.values()), self.fleet.region)
        return self.candidates

    def send(self, length: int) -> str:
        assert self.candidates.look()
        return self.candidates[self.policy.choose(Query("m", tokens=length), self.candidates).position].id


def test_at_first_the_ranges_divide_1024_tokens_evenly(fleet, time):
    buckets = Buckets(fleet)
    assert [buckets.send(length) for length in (1, 255, 256, 512, 768, 5000)] == ["w0", "w0", "w1", "w2", "w3", "w3"]


def test_then_each_worker_gets_as_many_tokens(fleet, time):
    buckets = Buckets(fleet)
    draw, tokens = random.Random(1), Counter()
    for number in range(4000):
        time.now += 0.01
        length = draw.choice([draw.randrange(20, 200), draw.randrange(4000, 30_000)])
        worker = buckets.send(length)
        if number >= 2000:
            tokens[worker] += length
    assert max(tokens.values()) < 1.3 * min(tokens.values())


def test_a_burst_is_learned_from_however_long_the_silence_after_it(fleet, time):
    buckets = Buckets(fleet, bucket_adjust_interval_secs=5)
    burst = [100] * 8 + [200] * 4 + [400] * 2 + [800]
    for length in burst:
        buckets.send(length)
    time.now += 3600
    assert [buckets.send(length) for length in (100, 200, 400, 800)] == WORKERS


def test_what_came_before_the_last_period_is_forgotten(fleet, time):
    buckets = Buckets(fleet, bucket_adjust_interval_secs=5)
    for length in [10_000] * 50:
        buckets.send(length)
    time.now += 6
    for length in [100] * 8 + [200] * 4 + [400] * 2 + [800]:
        buckets.send(length)
    time.now += 6
    assert [buckets.send(length) for length in (100, 200, 400, 800)] == WORKERS


def test_bucket_reinit_a_new_snapshot_of_the_same_workers_changes_nothing(fleet, time):
    buckets = Buckets(fleet)
    before = [buckets.send(length) for length in range(0, 1024, 64)]
    buckets.snapshot()
    assert [buckets.send(length) for length in range(0, 1024, 64)] == before


def test_bucket_reinit_another_worker_gets_its_part_at_once(fleet, time):
    buckets = Buckets(fleet)
    buckets.candidates = Candidates(list(fleet.workers.values())[:3], fleet.region)
    assert {buckets.send(length) for length in range(0, 1024, 16)} == {"w0", "w1", "w2"}
    buckets.snapshot()
    assert {buckets.send(length) for length in range(0, 1024, 16)} == set(WORKERS)


def test_a_worker_that_is_down_hands_its_range_on(fleet, time):
    buckets = Buckets(fleet)
    fleet.set("w1", "not_ready")
    assert buckets.send(300) == "w2"


def test_an_overloaded_worker_is_passed_over(fleet, time):
    buckets = Buckets(fleet, balance_abs_threshold=4)
    fleet.region.inflight_add(2, 0, 5, 0)
    assert buckets.send(10) != "w0"


def test_text_is_measured_too(fleet, time):
    buckets = Buckets(fleet)
    assert buckets.candidates.look()
    choice = buckets.policy.choose(Query("m", text="x" * 3000), buckets.candidates)
    assert buckets.candidates[choice.position].id == "w2"
