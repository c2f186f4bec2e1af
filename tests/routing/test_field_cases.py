"""Routing's field cases, through the router."""

import os
import random
import time
from collections import Counter
from itertools import islice

import pytest

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg._native.region import Region
from smg.config.settings import RoutingSettings
from smg.routing.policies.prefix_hash import PrefixHash
from smg.routing.policies.ring import HashRing
from smg.routing.router import Query
from tests._native.forks import all_of
from tests.routing.fleets import FakeFleet
from tests.routing.routers import prompt, router_of, serve
from tests.work import calls_of


class TestRO02:
    """A miss at low load does not always go to the first worker."""

    @pytest.mark.parametrize("text", [False, True])
    def test_RO_02_misses_spread_and_repeats_return(self, text):
        fleet = FakeFleet({"qwen": ["w0", "w1", "w2", "w3"]})
        router = router_of(fleet, "cache_aware")
        draw = random.Random(2)
        prompts = [[draw.randrange(50_000) for _ in range(128)] for _ in range(200)]

        def query(ids: list[int]) -> Query:
            words = "".join(map(chr, ids)) if text else ""
            return Query("qwen", () if text else ids, text=words, tokens=128)

        first = [serve(router, query(ids)).worker.id for ids in prompts]
        assert all(20 <= count <= 80 for count in Counter(first).values())
        assert len(set(first)) == 4
        second = [serve(router, query(ids)).worker.id for ids in prompts]
        assert sum(a == b for a, b in zip(first, second, strict=True)) >= 190


class TestRO03:
    """Imbalance does not switch affinity off."""

    @pytest.mark.parametrize("absolute", [64, 8])
    def test_RO_03_a_warm_worker_near_the_minimum_wins(self, absolute):
        fleet = FakeFleet({"qwen": ["w0", "w1", "w2", "w3"]})
        router = router_of(fleet, "cache_aware", balance_abs_threshold=absolute)
        long = prompt(*range(500))
        for holder in ("w0", "w1"):
            fleet.set_only(holder)
            serve(router, long)
        fleet.set_only("w0", "w1", "w2", "w3")
        for slot, load in enumerate((40, 11, 10, 10)):
            fleet.region.inflight_add(2, slot, load, 0)
        lease = serve(router, long)
        assert (lease.worker.id, lease.matched) == ("w1", 8000)

    def test_RO_03_without_a_warm_worker_near_the_minimum_a_cold_one_is_taken(self):
        fleet = FakeFleet({"qwen": ["w0", "w1", "w2", "w3"]})
        router = router_of(fleet, "cache_aware", balance_abs_threshold=8)
        fleet.set_only("w0")
        serve(router, prompt(*range(500)))
        fleet.set_only("w0", "w1", "w2", "w3")
        for slot, load in enumerate((40, 11, 10, 10)):
            fleet.region.inflight_add(2, slot, load, 0)
        lease = serve(router, prompt(*range(500)))
        assert (lease.worker.id in ("w2", "w3"), lease.reason) == (True, "spread")


def test_RO_04_noise_of_counts_is_no_overload():
    """Counts are those of all eight processes, and scatter as their square root."""
    fleet = FakeFleet({"qwen": [f"w{number}" for number in range(8)]})
    policy = PrefixHash(RoutingSettings(), fleet.region)
    draw = random.Random(4)
    stayed = asked = 0
    for per_process in (10, 80):
        for _ in range(400):
            # The sum of many rare arrivals: Poisson.
            loads = [sum(draw.random() < per_process / 400 for _ in range(400)) for _ in range(8)]
            stayed += loads[0] <= policy.limit(sum(loads), 8)
            asked += 1
    assert stayed >= 0.98 * asked


def test_RO_06_what_a_process_has_learnt_survives_it():
    """Four processes learn; the one that learnt most is killed; the others still send every prefix where it was."""
    fleet = FakeFleet({"qwen": [f"w{number}" for number in range(4)]}, processes=6)
    heads = [prompt(*range(100 * number, 100 * number + 20)) for number in range(10)]
    first: dict[int, str] = {}
    owner = Region.create(processes=2, workers=16)  # where the children say which worker they chose

    def process(number: int):
        def run() -> None:
            fleet.index.join(number)
            router = router_of(fleet, "cache_aware", process=number)
            for head, query in enumerate(heads):
                if number == 1 or head % 3 == number - 2:
                    for _ in range(3):
                        owner.worker_set(head, 4, 1 + serve(router, query).worker.slot)
            os.kill(os.getpid(), 9) if number == 1 else None

        return run

    def killed() -> None:
        pid = os.fork()
        if pid == 0:
            process(1)()
        os.waitpid(pid, 0)

    killed()
    first = {head: owner.worker_get(head, 4) for head in range(10)}
    assert all(first.values())
    fleet.region.clear_process(1)
    all_of(*(process(number) for number in (2, 3, 4)))
    assert sum(owner.worker_get(head, 4) == first[head] for head in range(10)) == 10
    router = router_of(fleet, "cache_aware", process=5)
    again = [1 + serve(router, query).worker.slot for query in heads]
    assert again == [first[head] for head in range(10)]


class TestME02:
    """A burst of unique prompts never takes more memory than the limit."""

    def test_ME_02_memory_stays_below_the_limit_at_every_moment(self):
        limit = 4 << 20
        index = PrefixIndex.create(limit, slots=4)
        tickets = [index.admit(slot) for slot in range(4)]
        most = 0
        # As many tokens for the size of this index as 10,000 prompts of 20,000 tokens are for the default one.
        for number in range(650):
            ids = list(range(20_000 * number, 20_000 * (number + 1)))
            index.insert(PrefixKeys.of_tokens(ids), tickets[number % 4])
            if number % 10 == 0:
                most = max(most, os.fstat(index.fd).st_blocks * 512)
        assert most <= 1.5 * limit
        keys = PrefixKeys.of_tokens([7] * 20_000)
        index.insert(keys, tickets[0])
        assert index.depth(keys, [0]) == [keys.count]
        index.close()

    def test_ME_02_a_removed_workers_share_is_free(self):
        index = PrefixIndex.create(1 << 20, slots=4)
        for slot in range(2):
            ticket = index.admit(slot)
            for number in range(500):
                index.insert(PrefixKeys.of_tokens([slot, number, *range(62)]), ticket)
        before = index.counts()["entries"]
        index.dismiss(0)
        assert index.sweep()
        ticket = index.admit(2)
        for number in range(3000):
            index.insert(PrefixKeys.of_tokens([9, number, *range(62)]), ticket)
        assert index.counts()["entries"] >= before
        assert index.counts()["bytes"] <= 1 << 20
        index.close()


class TestPF02:
    """What a decision costs hardly depends on the size of the fleet."""

    @staticmethod
    def seconds(fleet: FakeFleet, policy: str, rounds: int) -> float:
        """Processor time of one decision, the best of several rounds."""
        router = router_of(fleet, policy)
        queries = [prompt(number, number + 1, *range(60)) for number in range(20)]
        serve(router, queries[0])

        def once() -> float:
            began = time.process_time()
            for query in queries:
                router.release(router.select(query), "ok")
            return (time.process_time() - began) / len(queries)

        return min(once() for _ in range(rounds))

    @pytest.fixture(scope="class")
    @classmethod
    def fleets(cls) -> dict[int, FakeFleet]:
        return {
            count: FakeFleet({"qwen": [f"w{number}" for number in range(count)]}, slots=4096) for count in (50, 4000)
        }

    @pytest.mark.parametrize(
        ("policy", "slack"),
        [
            # Those that look at a few workers: twice the time. The slack is what a busy machine adds.
            *(("random", 20e-6), ("round_robin", 20e-6), ("power_of_two", 20e-6)),
            # Those that weigh all: far below the millisecond that 4,000 workers take in Python, at the very least.
            *(("least_load", 500e-6), ("cache_aware", 500e-6), ("prefix_hash", 500e-6)),
        ],
    )
    def test_PF_02_a_decision_among_4000_costs_little_more_than_one_among_50(self, fleets, policy, slack):
        small, large = (self.seconds(fleets[count], policy, 15) for count in (50, 4000))
        assert large < 2 * small + slack

    @pytest.mark.parametrize(
        "policy", ["random", "round_robin", "power_of_two", "least_load", "cache_aware", "prefix_hash"]
    )
    def test_PF_02_no_policy_calls_more_for_a_larger_fleet(self, fleets, policy):
        """Whoever weighs all workers does so in one call."""

        def work(fleet: FakeFleet) -> int:
            router = router_of(fleet, policy)
            queries = [prompt(number, number + 1, *range(60)) for number in range(20)]
            serve(router, queries[0])
            return calls_of(lambda: [router.release(router.select(query), "ok") for query in queries])

        assert work(fleets[4000]) <= 1.05 * work(fleets[50])

    def test_PF_02_a_worker_more_costs_a_ring_one_pass(self):
        names = [f"grpc://w{number}:1" for number in range(500)]
        grown = HashRing(names[:-1])
        grown.update(names)
        fresh = HashRing(names)
        for number in range(200):
            assert next(grown.walk(str(number))) == next(fresh.walk(str(number)))
        grown.update(names[1:])
        fresh = HashRing(names[1:])
        for number in range(200):
            assert list(islice(grown.walk(str(number)), 3)) == list(islice(fresh.walk(str(number)), 3))
