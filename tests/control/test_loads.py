"""What the admin routes are told of engines' loads (spec api-and-ops 1.10)."""

from types import SimpleNamespace

import msgspec
import pytest

from smg._native import region as table
from smg._native.region import Region
from smg.control.admin import operations
from smg.engines.base import EngineLoad
from smg.fleet import loads
from smg.fleet.loads import LoadReport
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec

RANK = {
    "dp_rank": 1,
    "num_running_reqs": 2,
    "num_waiting_reqs": 3,
    "num_waiting_uncached_tokens": 6,
    "num_total_reqs": 5,
    "num_used_tokens": 40,
    "max_total_num_tokens": 100,
    "token_usage": 0.5,
    "gen_throughput": 7.5,
    "cache_hit_rate": 0.25,
    "utilization": 0.75,
    "max_running_requests": 8,
}
LOADS = (EngineLoad(used_tokens=2), EngineLoad(1, 2, 3, 40, 100, 0.5, 6, 7.5, 0.25, 0.75, 8))


@pytest.fixture
def region():
    return Region.create(processes=2, workers=4, series=16, snapshot_bytes=1 << 14)


@pytest.fixture
def registry(region):
    return Registry(region)


async def told(registry, region):
    parts = await operations(SimpleNamespace(registry=registry), region)["loads"]({})
    return [load async for part in parts for piece in part["json"] for load in msgspec.json.decode(b"[%b]" % piece)]


async def test_an_engine_that_has_told_nothing(registry, region):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    region.inflight_add(1, worker.slot, 2, 20)
    assert await told(registry, region) == [
        {"worker": "grpc://a:1", "id": worker.id, "worker_type": "regular", "in_flight": 2, "load": -1}
    ]


async def test_the_last_report_rank_by_rank(registry, region):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.report_load(worker.id, LoadReport(1700000000.5, LOADS))
    (load,) = await told(registry, region)
    assert load["load"] == 42
    assert (load["details"]["timestamp"], load["details"]["dp_rank_count"]) == (1700000000.5, 2)
    assert load["details"]["loads"][1] == RANK


async def test_a_report_is_forgotten_with_its_worker_and_when_the_engine_is_away(registry, region):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.report_load(worker.id, LoadReport(1.0, LOADS))
    registry.report_load(worker.id, None)
    assert (await told(registry, region))[0]["load"] == -1
    registry.report_load(worker.id, LoadReport(1.0, LOADS))
    registry.remove(worker.id)
    assert registry.load(worker.id) is None
    # A poll that was on its way comes too late.
    registry.report_load(worker.id, LoadReport(1.0, LOADS))
    assert registry.load(worker.id) is None


class TestPushed:
    """Loads that engines tell unasked (spec engine-contract 2.9)."""

    def test_each_rank_replaces_what_it_said_before(self, registry, region):
        worker = registry.add(WorkerSpec("grpc://a:1"))
        report = None
        for load in (EngineLoad(1, running=5), EngineLoad(0, running=1), EngineLoad(1, running=2)):
            report = loads.take(region, worker, report, load)
        assert [(rank.dp_rank, rank.running) for rank in report.ranks] == [(0, 1), (1, 2)]
        assert region.worker_get(worker.slot, table.RUNNING) == 3

    def test_who_tells_is_not_asked_for_as_long_as_it_does(self, monkeypatch):
        monkeypatch.setattr(loads.clock, "wall", lambda: 1000.0)
        assert LoadReport(995.0, LOADS, pushed=True).fresh
        assert not LoadReport(985.0, LOADS, pushed=True).fresh
        assert not LoadReport(999.0, LOADS).fresh
