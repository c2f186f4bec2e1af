"""The Router over the shared region: candidates from the snapshot, loads and counts from the region's cells.

Selection and counting are one step (reserve on select), so a burst of selections in one loop turn spreads (spec routing
10.3). Each lease is released exactly once, whatever happens to its request.
"""

from collections.abc import Sequence
from typing import Protocol

from smg._native.region import FAILURES, LAST_OK, PROCESSED
from smg.core import clock
from smg.core.errors import GatewayError
from smg.fleet.records import FleetSnapshot, ModelRecord, Status, WorkerRecord
from smg.routing import needs
from smg.routing.models import resolve
from smg.routing.policies.base import Policy
from smg.routing.router import Lease, Query

_EXPECTED = frozenset({"pending", "ready", "not_ready"})


class Fleet(Protocol):
    """The part of ``FleetView`` the router reads."""

    def snapshot(self) -> FleetSnapshot: ...

    def status(self, worker: WorkerRecord) -> Status | None: ...


class Cells(Protocol):
    """The part of the region the router counts in."""

    def inflight_add(self, process: int, slot: int, requests: int, tokens: int) -> None: ...

    def inflight_many(self, slots: Sequence[int]) -> list[int]: ...

    def worker_set(self, slot: int, field: int, value: int) -> None: ...

    def worker_add(self, slot: int, field: int, delta: int) -> int: ...


class FleetRouter:
    """Implements ``routing.router.Router`` for one request process."""

    def __init__(self, fleet: Fleet, cells: Cells, process: int, policy: Policy) -> None:
        self._fleet = fleet
        self._cells = cells
        self._process = process
        self._policy = policy

    @property
    def policy(self) -> str:
        return self._policy.name

    def select(self, query: Query) -> Lease:
        """See ``Router.select``. Candidates are ready now, able to, and not in ``query.tried``."""
        model = resolve(self._fleet.snapshot(), query.model)
        candidates = self._candidates(model, query)
        if not candidates:
            needs.check(query, self._serving(model))
            raise GatewayError("no_available_workers", f"no worker is available for the model '{model.id}'")
        loads = self._cells.inflight_many([worker.slot for worker in candidates])
        index, reason = self._policy.choose(query, candidates, loads)
        worker = candidates[index]
        self._cells.inflight_add(self._process, worker.slot, 1, query.tokens)
        return Lease(worker, reason, query.tokens, lacks=needs.missing(worker, query.wishes))

    def available(self, query: Query) -> bool:
        """Tell whether ``select`` would find a worker."""
        model = resolve(self._fleet.snapshot(), query.model)
        return bool(self._candidates(model, query))

    def commit(self, lease: Lease) -> None:
        """See ``Router.commit``: notes when the worker was last seen to work."""
        self._cells.worker_set(lease.worker.slot, LAST_OK, int(clock.monotonic() * 1000))

    def release(self, lease: Lease, outcome: str) -> None:
        """See ``Router.release``. ``worker_failed`` makes control probe the worker at once."""
        if lease.done:
            return
        lease.done = True
        slot = lease.worker.slot
        self._cells.inflight_add(self._process, slot, -1, -lease.tokens)
        if outcome == "worker_failed":
            self._cells.worker_add(slot, FAILURES, 1)
        elif outcome == "ok":
            self._cells.worker_add(slot, PROCESSED, 1)

    def _candidates(self, model: ModelRecord, query: Query) -> list[WorkerRecord]:
        ready = [worker for worker in self._serving(model) if self._fleet.status(worker) == "ready"]
        return needs.able([worker for worker in ready if worker.id not in query.tried], query)

    def _serving(self, model: ModelRecord) -> list[WorkerRecord]:
        """The model's workers that are ready or may be so again."""
        names = {model.id, *model.aliases}
        return [
            worker
            for worker in self._fleet.snapshot().workers
            if not names.isdisjoint(worker.models) and self._fleet.status(worker) in _EXPECTED
        ]


def outcome_of(error: GatewayError) -> str:
    """The outcome a failed attempt is booked as (field cases RL-01, RL-02).

    A worker is only to blame where the driver says so: neither a bad request nor being busy is a failure.
    """
    if error.worker_fault:
        return "worker_failed"
    return "busy" if error.status in (429, 503) else "client_error"
