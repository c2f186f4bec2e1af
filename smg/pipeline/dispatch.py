"""Finds a worker for a prepared request and gets its first batch; everything before the first byte may be retried."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from smg.core.backends import EngineRequest, Source
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.retry import Attempts
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

    async def run(self, query: Query, engine_request: EngineRequests) -> Running:
        """Try workers until one has delivered. ``engine_request(attempt)`` makes each attempt's own request.

        Raises:
            GatewayError: the last attempt's error, or ``no_available_workers``.
        """
        router = self._services.router
        attempts = Attempts(self._services.settings.routing, self._ctx)

        def available(tried: frozenset[str]) -> bool:
            return router.available(replace(query, tried=tried))

        while True:
            lease = router.select(replace(query, tried=attempts.tried))
            try:
                self._facts.selected(lease, attempts.number)
                return await self._attempt(lease, _at_rank(engine_request(attempts.number), lease.rank))
            except GatewayError as error:
                router.release(lease, "cancelled" if self._ctx.cancel else outcome_of(error))
                wait = attempts.failed(error, lease.worker.id, available)
                self._facts.retried(error.code)
            except BaseException:
                router.release(lease, "cancelled")
                raise
            if wait:
                await self._interrupt.run(asyncio.sleep(wait))

    async def _attempt(self, lease: Lease, request: EngineRequest) -> Running:
        driver = self._services.drivers.get(lease.worker)
        source = await self._interrupt.run(driver.open(self._ctx, request))
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
        self._services.router.commit(lease)
        return Running(lease, source, first)

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
