"""A worker as operators see it (field case PF-02)."""

import msgspec
import pytest

from smg._native.region import Region
from smg.config.settings import RoutingSettings
from smg.control.describe import Describer
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec
from tests.work import calls_of


@pytest.mark.parametrize("count", [500, 4000])
def test_PF_02_the_list_of_workers_is_as_much_work_per_worker_in_any_fleet(count):
    region = Region.create(3, workers=4096)
    registry = Registry(region)
    for number in range(count):
        registry.add(WorkerSpec(f"grpc://10.0.{number // 250}.{number % 250}:1", priority=number))
    describer = Describer(registry, region, CircuitBreakers(region, RoutingSettings()))
    listed: list[dict] = []
    assert calls_of(lambda: listed.extend(describer.worker(worker) for worker in registry.workers)) < 48 * count
    assert [each["priority"] for each in listed] == list(range(count))
    # All of it in one message to the worker that asked, and one answer.
    assert len(msgspec.json.encode(listed)) < 1000 * count
    region.close()
