"""The Router over the shared region: candidates from the snapshot, loads and counts from the region's cells.

Selection and counting are one step (reserve on select), so a burst of selections in one loop turn spreads (spec routing
10.3). Each lease is released exactly once, whatever happens to its request. A lease's tokens are the prompt tokens its
worker has still to compute: they count until it begins to answer.
"""

from typing import Protocol

from smg._native.region import FAILURES, LAST_OK, PROCESSED, Region
from smg.core import clock
from smg.core.errors import GatewayError
from smg.fleet.records import FleetSnapshot, Status, WorkerRecord
from smg.routing import needs
from smg.routing.candidates import Candidates
from smg.routing.models import resolve
from smg.routing.policies.base import Policy
from smg.routing.router import Lease, Query

_EXPECTED = frozenset({"pending", "ready", "not_ready"})


class Fleet(Protocol):
    """The part of ``FleetView`` the router reads."""

    def snapshot(self) -> FleetSnapshot: ...

    def status(self, worker: WorkerRecord) -> Status | None: ...


class FleetRouter:
    """Implements ``routing.router.Router`` for one request process."""

    def __init__(self, fleet: Fleet, region: Region, process: int, policy: Policy) -> None:
        self._fleet = fleet
        self._region = region
        self._process = process
        self._policy = policy
        self._snapshot: FleetSnapshot | None = None
        self._candidates: dict[str, Candidates] = {}

    @property
    def policy(self) -> str:
        return self._policy.name

    def select(self, query: Query) -> Lease:
        """See ``Router.select``. Candidates are ready now, able to, and not in ``query.tried``."""
        candidates = self._of(query.model)
        if not _look(candidates, query):
            needs.check(query, [w for w in candidates.workers if self._fleet.status(w) in _EXPECTED])
            model = resolve(self._fleet.snapshot(), query.model)
            raise GatewayError("no_available_workers", f"no worker is available for the model '{model.id}'")
        choice = self._policy.choose(query, candidates)
        place = candidates[choice.position]
        lease = Lease(
            place.worker,
            choice.reason,
            tokens=max(query.tokens - choice.matched, 0),
            matched=choice.matched,
            lacks=needs.missing(place.worker, query.wishes),
            lesson=choice.lesson,
            rank=place.rank,
            slot=None if place.rank is None else place.slot,
            policy=choice.policy or self._policy.name,
            prompt=query.tokens,
        )
        self._count(lease, 1, lease.tokens)
        if lease.lesson is not None:
            lease.lesson.assume()
        return lease

    def available(self, query: Query) -> bool:
        """Tell whether ``select`` would find a worker."""
        return _look(self._of(query.model), query)

    def commit(self, lease: Lease) -> None:
        """See ``Router.commit``: the prompt is computed, and the worker was seen to work."""
        slot = lease.worker.slot
        self._region.worker_set(slot, LAST_OK, int(clock.monotonic() * 1000))
        self._count(lease, 0, -lease.tokens)
        lease.tokens = 0
        if lease.lesson is not None:
            lease.lesson.confirm()
            lease.lesson = None

    def release(self, lease: Lease, outcome: str) -> None:
        """See ``Router.release``. ``worker_failed`` makes control probe the worker at once."""
        if lease.done:
            return
        lease.done = True
        slot = lease.worker.slot
        self._count(lease, -1, -lease.tokens)
        if lease.lesson is not None:
            # It never began to answer: nothing shows that it holds the prompt.
            lease.lesson.withdraw()
            lease.lesson = None
        if outcome == "worker_failed":
            self._region.worker_add(slot, FAILURES, 1)
        elif outcome == "ok":
            self._region.worker_add(slot, PROCESSED, 1)

    def _count(self, lease: Lease, requests: int, tokens: int) -> None:
        """Count on the worker, and on the rank the request goes to."""
        self._region.inflight_add(self._process, lease.worker.slot, requests, tokens)
        if lease.slot is not None:
            self._region.inflight_add(self._process, lease.slot, requests, tokens)

    def _of(self, name: str) -> Candidates:
        """The candidates for the model called ``name``. Raises GatewayError when there is no such model."""
        snapshot = self._fleet.snapshot()
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._candidates = {}
        found = self._candidates.get(name)
        if found is None:
            model = resolve(snapshot, name)
            names = {model.id, *model.aliases}
            workers = [worker for worker in snapshot.workers if not names.isdisjoint(worker.models)]
            policy = model.policy or next((w.labels["policy"] for w in workers if w.labels.get("policy")), "")
            found = self._candidates[name] = Candidates(workers, self._region, policy)
        return found


def _look(candidates: Candidates, query: Query) -> bool:
    """See who is ready and has what ``query`` needs; those who have all it wishes too come first."""
    rank = query.hints.dp_rank
    wishes = bool(query.wishes) or rank is not None
    if wishes and candidates.look([*query.tried, *candidates.lacking(query.needs | query.wishes)], rank):
        return True
    return candidates.look([*query.tried, *candidates.lacking(query.needs)])


def outcome_of(error: GatewayError) -> str:
    """The outcome a failed attempt is booked as (field cases RL-01, RL-02).

    A worker is only to blame where the driver says so: neither a bad request nor being busy is a failure.
    """
    if error.worker_fault:
        return "worker_failed"
    return "busy" if error.status in (429, 503) else "client_error"
