"""What a probe that fails says of its worker."""

import asyncio
from itertools import count

import pytest

from smg.core.errors import GatewayError
from smg.fleet.health import Thresholds
from smg.fleet.monitor import WorkerMonitor
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec


class Unreachable:
    """Finds no engine, for a reason that is another one each time."""

    scheme = "grpc"
    connected = False

    def __init__(self, details):
        self._details = iter(details)

    async def find(self):
        raise GatewayError("worker_failed", "the engine is not reachable", detail=next(self._details))


@pytest.fixture
async def monitored(region):
    """A monitor whose worker counts as failed after three probes, its registry, and the worker."""
    registry = Registry(region)
    worker = registry.add(WorkerSpec("grpc://a:1"))
    monitor = WorkerMonitor(
        registry, region, worker, Thresholds(attempts=3), 1.0, asyncio.Semaphore(), lambda name: None
    )
    yield monitor, registry, worker
    await monitor.close()


def failing(monitor, details):
    monitor._finder, real = Unreachable(details), monitor._finder
    monitor._finder.close = real.close


async def test_the_cause_is_told_with_the_reason_on_one_line(monitored):
    monitor, _, worker = monitored
    failing(monitor, ["UNAVAILABLE: refused\n  at a:1 " + "x" * 400])
    await monitor._step()
    assert worker.reason.startswith("the engine is not reachable: UNAVAILABLE: refused at a:1 xxx")
    assert len(worker.reason) == len("the engine is not reachable: ") + 300


async def test_a_cause_that_changes_with_each_probe_changes_nothing_before_the_state_does(monitored):
    monitor, registry, worker = monitored
    failing(monitor, (f"port {number}" for number in count()))
    await monitor._step()
    registry.publish()
    registry.dirty.clear()
    await monitor._step()
    assert (worker.status, worker.reason) == ("pending", "the engine is not reachable: port 0")
    assert not registry.dirty.is_set()
    await monitor._step()
    assert (worker.status, worker.reason) == ("failed", "the engine is not reachable: port 2")
    assert registry.dirty.is_set()
