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
from smg.pipeline.silence import silent
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
        self._attempts = Attempts(services.settings.routing, ctx, services.budget)

    async def run(self, query: Query, engine_request: EngineRequests) -> Running:
        """Try workers until one has delivered. ``engine_request(attempt)`` makes each attempt's own request.

        Raises:
            GatewayError: the last attempt's error, or ``no_available_workers``.
        """
        self._services.budget.request()
        try:
            return await self._until_one_delivers(query, engine_request)
        except GatewayError:
            if self._attempts.number > 1:
                self._facts.exhausted()
            raise

    async def resume(self, error: GatewayError, lease: Lease, query: Query, engine_request: EngineRequests) -> Running:
        """Go on with the rest of what ``lease``'s worker broke off with ``error``, on another one.

        Raises:
            GatewayError: ``error`` when there is no other worker, or as ``run``. The lease is released in any case.
        """
        self._services.router.release(lease, outcome_of(error))
        self._attempts.broke(error, lease.worker.id, self._available(query))
        return await self._until_one_delivers(query, engine_request)

    async def _until_one_delivers(self, query: Query, engine_request: EngineRequests) -> Running:
        router, attempts = self._services.router, self._attempts
        while True:
            try:
                lease = router.select(replace(query, tried=attempts.tried))
            except GatewayError as error:
                wait = attempts.refused(error, lambda: router.patience(query))
            else:
                worker = lease.worker.id
                try:
                    self._facts.selected(lease, router.policy, attempts.number)
                    return await self._attempt(lease, engine_request(attempts.number))
                except GatewayError as error:
                    router.release(lease, "cancelled" if self._ctx.cancel else outcome_of(error))
                    wait = attempts.failed(error, worker, self._available(query), lambda: router.patience(query))
                    self._facts.retried(error, worker, attempts.number, wait)
                except BaseException:
                    router.release(lease, "cancelled")
                    raise
            if wait:
                await self._interrupt.run(asyncio.sleep(wait))

    def _available(self, query: Query) -> Callable[[frozenset[str]], bool]:
        return lambda tried: self._services.router.available(replace(query, tried=tried))

    async def _attempt(self, lease: Lease, request: EngineRequest) -> Running:
        driver = self._services.drivers.get(lease.worker)
        source = await self._interrupt.run(driver.open(self._ctx, request))
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
