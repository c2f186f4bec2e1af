"""Data-parallel ranks are places of their own: slots, loads, prefixes, pins (spec routing 1.9, 4.6; case RO-05)."""

from collections import Counter

import pytest

from smg._native.region import QUEUED_TOKENS
from smg.core.request import Hints
from smg.fleet.ranks import ranks_of
from smg.fleet.records import RankRecord, WorkerRecord
from smg.routing.candidates import places
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import PROCESS, FakeFleet
from tests.routing.routers import prompt, router_of, serve


@pytest.fixture
def fleet() -> FakeFleet:
    """An engine on two machines: ranks 0 to 3 behind a, 4 to 7 behind b, in slots 10 to 17."""
    made = FakeFleet({"qwen": ["a", "b"]})
    for number in range(8):
        worker = made.workers["a" if number < 4 else "b"]
        worker.ranks.append(RankRecord(number, 10 + number))
        made.region.worker_set(10 + number, 0, 2)
        made.index.admit(10 + number)
    return made


def test_RO_05_each_global_rank_gets_its_share_and_no_address_has_a_rank_in_it(fleet):
    router = router_of(fleet, "cache_aware")
    leases = [router.select(prompt(number, 7)) for number in range(800)]
    assert set(Counter(lease.rank for lease in leases).values()) == {100}
    assert {lease.rank for lease in leases if lease.worker.id == "b"} == {4, 5, 6, 7}
    assert {lease.worker.url for lease in leases} == {"grpc://a", "grpc://b"}
    assert [fleet.region.inflight(10 + rank)[0] for rank in range(8)] == [100] * 8
    assert [fleet.region.inflight(fleet.workers[name].slot)[0] for name in "ab"] == [400, 400]
    for lease in leases:
        router.release(lease, "ok")
    assert fleet.idle()
    assert [fleet.region.inflight(10 + rank) for rank in range(8)] == [(0, 0)] * 8


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_RO_05_every_policy_chooses_a_rank_of_the_worker_it_chooses(fleet, policy):
    router = router_of(fleet, policy)
    for number in range(40):
        lease = serve(router, Query("qwen", [number] * 64, hints=Hints(routing_key=str(number)), tokens=64))
        assert (lease.rank < 4) == (lease.worker.id == "a")


def test_a_prefix_belongs_to_the_rank_that_computed_it(fleet):
    router = router_of(fleet, "cache_aware")
    first = serve(router, prompt(1, 2, 3, 4))
    again = [serve(router, prompt(1, 2, 3, 4, 5)) for _ in range(4)]
    assert {(lease.rank, lease.reason) for lease in again} == {(first.rank, "prefix")}


def test_a_pin_is_honoured(fleet):
    router = router_of(fleet, "cache_aware")
    assert {serve(router, Query("qwen", [1], hints=Hints(dp_rank=6))).rank for _ in range(5)} == {6}


def test_a_failed_worker_is_left_with_all_its_ranks(fleet):
    router = router_of(fleet, "round_robin")
    assert {serve(router, Query("qwen", tried=frozenset({"a"}))).rank for _ in range(8)} == {4, 5, 6, 7}


def test_minimum_tokens_decides_where_the_policy_only_chooses_a_worker(fleet):
    router = router_of(fleet, "passthrough", dp_minimum_tokens_scheduler=True)
    for rank in (0, 1, 3):
        fleet.region.inflight_add(PROCESS, 10 + rank, 1, 500)
    fleet.region.worker_set(12, QUEUED_TOKENS, 400)
    assert serve(router, prompt(1)).rank == 2
    fleet.region.worker_set(12, QUEUED_TOKENS, 600)
    assert serve(router, prompt(1)).rank == 0


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        ({}, []),
        ({"dp_size": "1"}, []),
        ({"dp_size": "4"}, [0, 1, 2, 3]),
        ({"dp_size": "8", "dp_size_local": "4", "dp_start_rank": "4"}, [4, 5, 6, 7]),
        ({"dp_size": "8", "dp_size_local": "4", "dp_start_rank": "6"}, [6, 7]),
        ({"dp_size": "8", "dp_start_rank": "9"}, []),
        ({"dp_size": "many"}, []),
        ({"dp_size": "99999"}, []),
    ],
)
def test_ranks_are_read_from_labels(labels, ranks):
    worker = WorkerRecord("a", 0, "grpc://a", labels=labels)
    assert list(ranks_of(worker, dp_aware=True)) == ranks
    assert list(ranks_of(worker, dp_aware=False)) == []


def test_an_engine_that_takes_no_pins_has_no_ranks():
    worker = WorkerRecord("a", 0, "grpc://a", labels={"dp_size": "4"}, features=frozenset({"generate"}))
    assert list(ranks_of(worker, dp_aware=True)) == []


@pytest.mark.parametrize("dp_aware", [True, False])
@pytest.mark.parametrize(
    ("url", "labels"),
    [("http://a:1@3", {"dp_size": "8"}), ("a:1@3", {}), ("grpc://a:1", {"dp_rank": "3", "dp_size": "8"})],
)
def test_RO_05_a_worker_that_stands_for_one_rank_has_that_one(url, labels, dp_aware):
    assert list(ranks_of(WorkerRecord("a", 0, url, labels=labels), dp_aware=dp_aware)) == [3]


def test_RO_05_places_are_called_by_engine_and_rank():
    worker = WorkerRecord("w", 0, "http://a:1@3", ranks=[RankRecord(3, 1)])
    other = WorkerRecord("x", 2, "http://b:1", ranks=[RankRecord(0, 3), RankRecord(1, 4)])
    assert [place.name for place in places([worker, other])] == ["http://a:1@3", "http://b:1@0", "http://b:1@1"]
