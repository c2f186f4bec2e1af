"""Engines' own loads, polled into the region's worker table for policies and metrics (spec engine-contract 2.9)."""

import logging
from collections.abc import Iterable, Sequence

import msgspec

from smg._native import region as table
from smg.core import clock
from smg.core.errors import GatewayError
from smg.engines.base import Driver, EngineLoad
from smg.fleet.records import WorkerRecord

log = logging.getLogger("smg.fleet")

# Two of the heartbeats with which idle engines tell their load (spec engine-contract 2.9, 2.12).
PUSHED_SECS = 10.0
_MILLION = 1_000_000
# After so long, half of what a worker has computed is no longer held against it.
COMPUTED_HALF_LIFE = 30.0


class LoadReport(msgspec.Struct, frozen=True):
    """What one engine said last: its ranks, and the Unix time in seconds at which it did; ``pushed``: unasked."""

    timestamp: float
    ranks: tuple[EngineLoad, ...]
    pushed: bool = False

    @property
    def fresh(self) -> bool:
        """Whether the engine goes on telling by itself, so that nobody has to ask."""
        return self.pushed and clock.wall() - self.timestamp < PUSHED_SECS


async def poll(region: table.Region, worker: WorkerRecord, driver: Driver) -> LoadReport | None:
    """Ask one engine and write what it says; a failed poll leaves the last values (probes judge the engine)."""
    if "loads" not in driver.capabilities:
        return None
    try:
        ranks = await driver.loads()
    except GatewayError as error:
        log.debug("no loads", extra={"worker": worker.url, "error": error.detail})
        return None
    write_all(region, worker, ranks)
    return LoadReport(clock.wall(), tuple(ranks))


def take(region: table.Region, worker: WorkerRecord, last: LoadReport | None, load: EngineLoad) -> LoadReport:
    """Take over what one rank of an engine tells unasked, beside what the others have said last."""
    others = () if last is None else (each for each in last.ranks if each.dp_rank != load.dp_rank)
    ranks = sorted((*others, load), key=lambda each: each.dp_rank)
    write_all(region, worker, ranks)
    return LoadReport(clock.wall(), tuple(ranks), pushed=True)


def write_all(region: table.Region, worker: WorkerRecord, ranks: Sequence[EngineLoad]) -> None:
    """Write the load of a worker, and of each of its ranks that has a slot of its own."""
    write(region, worker.slot, ranks)
    for rank in worker.ranks:
        write(region, rank.slot, [load for load in ranks if load.dp_rank == rank.number])


def write(region: table.Region, slot: int, ranks: Sequence[EngineLoad]) -> None:
    """Sum the ranks' counts; of their KV usage the highest counts, since a request lands on one rank."""
    region.worker_set(slot, table.RUNNING, sum(load.running for load in ranks))
    region.worker_set(slot, table.WAITING, sum(load.waiting for load in ranks))
    region.worker_set(slot, table.QUEUED_TOKENS, sum(load.queued_tokens for load in ranks))
    usage = max((load.usage for load in ranks), default=0.0)
    region.worker_set(slot, table.USAGE, round(min(max(usage, 0.0), 1.0) * _MILLION))


def fade(region: table.Region, workers: Iterable[WorkerRecord]) -> None:
    """Halve what each worker has computed lately; to be called every ``COMPUTED_HALF_LIFE`` seconds."""
    for worker in workers:
        for slot in worker.slots:
            region.worker_add(slot, table.COMPUTED, -(region.worker_get(slot, table.COMPUTED) // 2))


def clear(region: table.Region, worker: WorkerRecord) -> None:
    """Forget the loads of an engine that is not ready: what it said is no longer true."""
    for slot in worker.slots:
        write(region, slot, ())
