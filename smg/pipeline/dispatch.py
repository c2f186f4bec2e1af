"""Finds a worker for a prepared request and gets its first batch; everything before the first byte may be retried."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from smg.core.backends import EngineRequest, Source
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.pairs import PairOpener
from smg.pipeline.services import Services
from smg.pipeline.silence import silent
from smg.pipeline.trying import Trying
from smg.routing.fleet_router import outcome_of
from smg.routing.router import Lease, Query

EngineRequests: TypeAlias = Callable[[int], EngineRequest]


class Running(msgspec.Struct):
    """A generation that has begun on a worker: ``first`` is what it has sent so far (empty: it is over already)."""

    lease: Lease
    source: Source
    first: list[TokenBatch]


class Dispatcher:
    """Runs the attempts of one request."""

    def __init__(self, services: Services, ctx: RequestContext, interrupt: Interrupt, facts: Facts) -> None:
        self._services = services
        self._ctx = ctx
        self._interrupt = interrupt
        self._facts = facts
        self._trying = Trying(services, ctx, interrupt, facts)

    def run(self, query: Query, engine_request: EngineRequests) -> Awaitable[Running]:
        """Try workers until one has delivered. ``engine_request(attempt)`` makes each attempt's own request.

        Raises:
            GatewayError: the last attempt's error, or ``no_available_workers``.
        """
        return self._trying.run(query, self._attempts(engine_request))

    async def resume(self, error: GatewayError, lease: Lease, query: Query, engine_request: EngineRequests) -> Running:
        """Go on with the rest of what ``lease``'s worker broke off with ``error``, on another one.

        Raises:
            GatewayError: ``error`` when there is no other worker, or as ``run``. The lease is released in any case.
        """
        self._services.router.release(lease, outcome_of(error))
        return await self._trying.go_on(error, lease.worker, query, self._attempts(engine_request))

    def _attempts(self, engine_request: EngineRequests) -> Callable[[Lease, int], Awaitable[Running]]:
        def attempt(lease: Lease, number: int) -> Awaitable[Running]:
            return self._attempt(lease, _at_rank(engine_request(number), lease.rank))

        return attempt

    async def _attempt(self, lease: Lease, request: EngineRequest) -> Running:
        source = await self._interrupt.run(self._open(lease, request))
        watch = self._services.silences.watch(lease.worker, self._interrupt, lambda: 0)
        patience = self._services.settings.routing.first_token_timeout_secs
        timer = asyncio.get_running_loop().call_later(patience, self._interrupt.fail, silent()) if patience else None
        try:
            first = await self._first(source)
        except BaseException as error:
            if self._ctx.cancel or not isinstance(error, GatewayError):
                why = self._ctx.cancel.reason or "client_disconnect"
                self._facts.aborted(why)
            else:
                why = "error"
            # Shielded: the engine must hear of it also when this task is cancelled once more.
            await asyncio.shield(source.cancel(why))
            raise
        finally:
            self._services.silences.forget(watch)
            if timer is not None:
                timer.cancel()
        self._services.router.commit(lease)
        return Running(lease, source, first)

    def _open(self, lease: Lease, request: EngineRequest) -> Awaitable[Source]:
        if lease.prefill is not None:
            return PairOpener(self._services, self._ctx, self._facts, lease).open(request)
        return self._services.drivers.get(lease.worker).open(self._ctx, request)

    async def _first(self, source: Source) -> list[TokenBatch]:
        """Wait for tokens or an end: headers and empty messages prove nothing yet (field case RL-03)."""
        seen: list[TokenBatch] = []
        while True:
            batches = await self._interrupt.run(source.next())
            seen += batches
            for batch in batches:
                if batch.finish in ("abort", "error"):
                    raise GatewayError("worker_failed", "the engine gave the request up", worker_fault=True)
            if not batches or any(batch.ids or batch.finish for batch in batches):
                return seen


def _at_rank(request: EngineRequest, rank: int | None) -> EngineRequest:
    return request if rank is None else replace(request, dp_rank=rank)
