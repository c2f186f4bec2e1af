"""The Router over the shared region: candidates from the snapshot, loads and counts from the region's cells.

Selection and counting are one step (reserve on select), so a burst of selections in one loop turn spreads (spec routing
10.3). Each lease is released exactly once, whatever happens to its request. A lease's tokens are the prompt tokens its
worker has still to compute: they count until it begins to answer.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from smg._native.region import COMPUTED, FAILURES, LAST_OK, PROCESSED, Region
from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.core.backends import BackendKind
from smg.core.errors import GatewayError
from smg.fleet import roles
from smg.fleet.breaker import CircuitBreakers, Outcome
from smg.fleet.records import FleetSnapshot, Status, WorkerRecord
from smg.routing import needs
from smg.routing.candidates import Candidates
from smg.routing.models import resolve
from smg.routing.pairing import PartnerFailed, Pools, aimed, for_item, for_leg, refusal
from smg.routing.policies.base import Policy
from smg.routing.router import Lease, Query
from smg.routing.serving import Serving

_EXPECTED = frozenset({"pending", "ready", "not_ready"})


class Fleet(Protocol):
    """The part of ``FleetView`` the router reads."""

    def snapshot(self) -> FleetSnapshot: ...

    def status(self, worker: WorkerRecord) -> Status | None: ...


class _NoPermit(Exception):
    """The circuit breaker of ``worker`` lets nobody through for now."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker


class FleetRouter:
    """Implements ``routing.router.Router`` for one request process."""

    def __init__(
        self,
        fleet: Fleet,
        region: Region,
        process: int,
        policy: Policy,
        breakers: CircuitBreakers | None = None,
    ) -> None:
        self._fleet = fleet
        self._region = region
        self._process = process
        self._policy = policy
        self._draw = random.Random()
        self.breakers = CircuitBreakers(region, RoutingSettings()) if breakers is None else breakers
        self._snapshot = FleetSnapshot()
        self._serving = Serving(self._snapshot, region)
        self._coming: Serving | None = None

    @property
    def policy(self) -> str:
        return self._policy.name

    def select(self, query: Query) -> Lease:
        """See ``Router.select``. Candidates are ready now, able to, and not in ``query.tried``."""
        while True:
            try:
                return self._select(query)
            except _NoPermit as error:
                # Another process was quicker to try whether this worker works again.
                query = replace(query, tried=query.tried | {error.worker})

    def _select(self, query: Query) -> Lease:
        pools = self._pools(query.model)
        regular, paired = pools.look_regular(query), pools.look_prefill(query)
        if regular and paired:
            paired = self._draw.choices((False, True), pools.shares())[0]
        if paired:
            return self._take_pair(query, pools)
        if regular:
            return self._take(query, pools.regular)
        raise self._nobody(query, pools)

    def _take_pair(self, query: Query, pools: Pools) -> Lease:
        """Choose the prefill worker among those seen ready, for it a decode worker, and encode workers if need be."""
        prefill = lease = self._take(aimed(for_leg(query, "prefill"), pools.prefill, pools), pools.prefill)
        try:
            facts = roles.facts(prefill.worker)
            if not pools.look_decode(query, facts):
                raise GatewayError("no_available_workers", "the decode engines have just become unavailable")
            lease = self._take(aimed(for_leg(query, "decode"), pools.decode, pools), pools.decode)
            lease.prefill = prefill
            if pools.encodes(query, facts):
                if not pools.look_encode(query, facts):
                    raise GatewayError("no_available_workers", "the encode engines have just become unavailable")
                for digest in query.media:
                    lease.encode.append(self._take(for_item(query, digest), pools.encode, lease.encode))
        except BaseException:
            self.release(lease, "cancelled")
            raise
        return lease

    def _take(self, query: Query, candidates: Candidates, held: Sequence[Lease] = ()) -> Lease:
        """Choose one; ``held`` are leases of the same request, whose workers its circuit breakers have let through."""
        choice = self._policy.choose(query, candidates)
        place = candidates[choice.position]
        permit = 0 if held and _has(held, place.id) else self.breakers.enter(place.worker)
        if permit is None:
            raise _NoPermit(place.id)
        lease = Lease(
            place.worker,
            choice.reason,
            tokens=query.tokens - choice.matched if query.tokens > choice.matched else 0,
            matched=choice.matched,
            lacks=needs.missing(place.worker, query.wishes),
            permit=permit,
            lesson=choice.lesson,
            rank=place.rank,
            slot=None if place.rank is None else place.slot,
            policy=choice.policy or self._policy.name,
            prompt=query.tokens,
        )
        self._count(lease, 1, lease.tokens)
        self._compute(lease, lease.tokens)
        if lease.lesson is not None:
            lease.lesson.assume()
        return lease

    def available(self, query: Query) -> bool:
        """Tell whether ``select`` would find a worker."""
        pools = self._pools(query.model)
        return pools.look_regular(query) or pools.look_prefill(query)

    def patience(self, query: Query) -> float | None:
        """See ``Router.patience``."""
        pools = self._pools(query.model)
        waits = [self._wait(pools.regular.workers, query)]
        for legs in pools.partners():
            needed = [self._wait(workers, for_leg(query, "prefill")) for workers in legs]
            if query.media and pools.encode.workers:
                needed.append(self._wait(pools.encode.workers, for_item(query, "")))
            if None not in needed:
                # A pair is as late as the latest of all it needs.
                waits.append(max(wait for wait in needed if wait is not None))
        return min((wait for wait in waits if wait is not None), default=None)

    def _wait(self, workers: Sequence[WorkerRecord], query: Query) -> float | None:
        """Seconds until the first breaker among those that are ready and able admits a request; None: there is none."""
        waits = [
            self.breakers.wait(worker)
            for worker in workers
            if self._fleet.status(worker) == "ready" and not needs.missing(worker, query.needs)
        ]
        return min(waits, default=None)

    def count(self, query: Query) -> int:
        """How many workers ``select`` would choose from now."""
        pools = self._pools(query.model)
        regular = len(pools.regular) if pools.look_regular(query) else 0
        return regular + (len(pools.prefill) if pools.look_prefill(query) else 0)

    def commit(self, lease: Lease) -> None:
        """See ``Router.commit``: the prompt is computed, and the worker was seen to work."""
        if lease.prefill is not None and not lease.prefill.done:
            self.commit(lease.prefill)
        slot = lease.worker.slot
        self._region.worker_set(slot, LAST_OK, int(clock.monotonic() * 1000))
        self._count(lease, 0, -lease.tokens)
        lease.tokens = 0
        if lease.lesson is not None:
            lease.lesson.confirm()
            lease.lesson = None

    def release(self, lease: Lease, outcome: Outcome) -> None:
        """See ``Router.release``. ``worker_failed`` makes control probe the worker at once."""
        if lease.done:
            return
        lease.done = True
        if lease.prefill is not None:
            self.release(lease.prefill, "ok" if outcome == "ok" else "cancelled")
        for encode in lease.encode:
            self.release(encode, "cancelled")
        slot = lease.worker.slot
        self._count(lease, -1, -lease.tokens)
        self._compute(lease, -lease.tokens)
        if lease.lesson is not None:
            # It never began to answer: nothing shows that it holds the prompt.
            lease.lesson.withdraw()
            lease.lesson = None
        self.breakers.leave(lease.worker, lease.permit, outcome)
        if outcome == "worker_failed":
            self._region.worker_add(slot, FAILURES, 1)
        elif outcome == "ok":
            self._region.worker_add(slot, PROCESSED, 1)

    def _nobody(self, query: Query, pools: Pools) -> GatewayError:
        """The error of a query nobody can take now, or nobody ever could."""
        expected = [worker for worker in pools.everyone if self._fleet.status(worker) in _EXPECTED]
        error = refusal(query, pools, expected, resolve(self._fleet.snapshot(), query.model).id)
        if error.code == "no_available_workers":
            error.retry_after = self.patience(query) or error.retry_after
            error.detail = self._states(query, pools)
        return error

    def _states(self, query: Query, pools: Pools) -> str:
        """What the model's workers are at the moment, for the log: ``2 not_ready, 1 breaker open, 1 tried``."""
        found: Counter[str] = Counter()
        for worker in pools.everyone:
            status = self._fleet.status(worker)
            if status == "ready" and worker.id in query.tried:
                found["tried"] += 1
            elif status == "ready" and (breaker := self.breakers.state(worker)) != "closed":
                found[f"breaker {breaker}"] += 1
            else:
                found[status or "gone"] += 1
        return "workers of the model: " + (", ".join(f"{count} {state}" for state, count in found.items()) or "none")

    def _count(self, lease: Lease, requests: int, tokens: int) -> None:
        """Count on the worker, and on the rank the request goes to."""
        self._region.inflight_add(self._process, lease.worker.slot, requests, tokens)
        if lease.slot is not None:
            self._region.inflight_add(self._process, lease.slot, requests, tokens)

    def _compute(self, lease: Lease, tokens: int) -> None:
        """Count what the place has to compute; what it turns out not to have begun is taken back."""
        self._region.worker_add(lease.worker.slot if lease.slot is None else lease.slot, COMPUTED, tokens)

    def kinds(self) -> frozenset[BackendKind]:
        """The kinds of backend there are in the fleet."""
        return self._current().kinds

    def prepare(self, snapshot: FleetSnapshot) -> Iterator[None]:
        """Do in steps what the first ``select`` with ``snapshot`` would do at once, for the models that are in use."""
        if not snapshot.alike(self._snapshot):
            coming = Serving(snapshot, self._region)
            yield from coming.prepare(self._serving)
            self._coming = coming

    def _current(self) -> Serving:
        """Who serves what now; it stays as long as only statuses change."""
        snapshot = self._fleet.snapshot()
        if snapshot is not self._snapshot:
            coming, self._coming = self._coming, None
            if not snapshot.alike(self._snapshot):
                if coming is None or coming.snapshot is not snapshot:
                    coming = Serving(snapshot, self._region)
                self._serving = coming
            self._snapshot = self._serving.snapshot = snapshot
        return self._serving

    def _pools(self, model: str) -> Pools:
        """The workers of the model called ``model``. Raises GatewayError when there is no such model."""
        return self._current().of(model)


def _has(held: Sequence[Lease], worker: str) -> bool:
    return any(lease.worker.id == worker for lease in held)


def outcome_of(error: GatewayError) -> Outcome:
    """The outcome a failed attempt is booked as (field cases RL-01, RL-02).

    A worker is only to blame where the driver says so: neither a bad request nor being busy is a failure, nor what the
    other worker of a pair did.
    """
    if isinstance(error, PartnerFailed):
        return "cancelled"
    if error.worker_fault:
        return "worker_failed"
    return "busy" if error.status in (429, 503) else "client_error"
