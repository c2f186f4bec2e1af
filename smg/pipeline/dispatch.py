"""Finds a worker for a prepared request and gets its first batch; everything before the first byte may be retried."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from smg.core.backends import EngineRequest, Source
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.services import Services
from smg.pipeline.trying import try_workers
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

        async def attempt(lease: Lease, number: int) -> Running:
            return await self._attempt(lease, engine_request(number))

        return await try_workers(self._services, self._ctx, self._interrupt, self._facts, query, attempt)

    async def _attempt(self, lease: Lease, request: EngineRequest) -> Running:
        driver = self._services.drivers.get(lease.worker)
        opening: Awaitable[Source] = driver.open(self._ctx, request)
        source = await self._interrupt.run(opening)
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
