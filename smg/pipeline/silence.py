"""Engines that say nothing any more: ends the wait for them, so that another one can be asked (spec api-and-ops 4.4).

A connection to a hanging engine looks like one to an engine that computes a long prompt. Two things tell them apart:
the probes that control makes, and, where an operator has set it, a limit on silence.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from smg.core import clock
from smg.core.errors import GatewayError
from smg.fleet.records import Status, WorkerRecord
from smg.pipeline.interrupt import Interrupt

# Silence after which a generation is given up on a worker that fails its probes, in seconds.
OUT_SECS = 2.0
_OUT = frozenset({"not_ready", "failed"})


class Statuses(Protocol):
    """The part of ``FleetView`` that is looked at."""

    def status(self, worker: WorkerRecord) -> Status | None: ...


class Watch(msgspec.Struct, eq=False):
    """One generation: ``progress`` returns a number that changes with every token; ``since`` is when it last did."""

    worker: WorkerRecord
    interrupt: Interrupt
    progress: Callable[[], int]
    seen: int = -1
    since: float = 0.0


class Silences:
    """The generations of this process that wait for engines; ``limit`` is the longest silence in seconds, 0: any."""

    def __init__(self, statuses: Statuses, limit: float) -> None:
        self._statuses = statuses
        self._limit = limit
        self._watches: dict[str, set[Watch]] = {}
        self._out: set[str] = set()

    def watch(self, worker: WorkerRecord, interrupt: Interrupt, progress: Callable[[], int]) -> Watch:
        """Watch over a generation on ``worker`` until ``forget``; ``interrupt`` is what it waits with."""
        found = Watch(worker, interrupt, progress)
        self._watches.setdefault(worker.id, set()).add(found)
        return found

    def forget(self, watch: Watch) -> None:
        """The generation waits for this worker no more. Idempotent."""
        group = self._watches.get(watch.worker.id)
        if group is not None:
            group.discard(watch)
            if not group:
                del self._watches[watch.worker.id]
                self._out.discard(watch.worker.id)

    def check(self) -> None:
        """Look after all of them; called about twice a second."""
        now = clock.monotonic()
        for id, group in list(self._watches.items()):
            out = self._statuses.status(next(iter(group)).worker) in _OUT
            if out and id not in self._out:
                # Silence before the worker went out was its own business.
                self._out.add(id)
                for watch in group:
                    watch.seen = -1
            elif not out:
                self._out.discard(id)
            longest = min(OUT_SECS, self._limit or OUT_SECS) if out else self._limit
            if longest:
                for watch in list(group):
                    _check(watch, now, longest)


def _check(watch: Watch, now: float, longest: float) -> None:
    progress = watch.progress()
    if progress != watch.seen or not watch.interrupt.waiting:
        # While nobody waits, it is the client who is slow.
        watch.seen, watch.since = progress, now
    elif now - watch.since >= longest:
        watch.interrupt.fail(silent())


def silent() -> GatewayError:
    """The error of an engine that has said nothing for too long."""
    return GatewayError("upstream_timeout", "the engine has stopped answering", worker_fault=True)
