"""Tries workers until one has begun to answer, whatever kind of backend it is (spec routing 6, field case RL-03)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.turns import LONG_PROMPT, turn
from smg.fleet.records import WorkerRecord
from smg.fleet.resilience import ResilienceSpec
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.pairing import PartnerFailed
from smg.routing.retry import Attempts
from smg.routing.router import Lease, Query

T = TypeVar("T")


class Trying:
    """The attempts of one request. ``attempt(lease, number)`` makes one; number counts from 1.

    A failed attempt has delivered nothing and gives its lease back here; a good one keeps it.
    """

    def __init__(self, services: Services, ctx: RequestContext, interrupt: Interrupt, facts: Facts) -> None:
        self._services = services
        self._ctx = ctx
        self._interrupt = interrupt
        self._facts = facts
        self._attempts = Attempts(services.settings.routing, ctx, services.budget)

    async def run(self, query: Query, attempt: Callable[[Lease, int], Awaitable[T]]) -> T:
        """Try one worker after the other.

        Raises:
            GatewayError: the last attempt's error, or ``no_available_workers``.
        """
        self._services.budget.request()
        try:
            return await self._until_one_delivers(query, attempt)
        except GatewayError:
            if self._attempts.number > 1:
                self._facts.exhausted()
            raise

    async def go_on(
        self, error: GatewayError, worker: WorkerRecord, query: Query, attempt: Callable[[Lease, int], Awaitable[T]]
    ) -> T:
        """Try others after ``worker`` broke off what it had begun.

        Raises:
            GatewayError: ``error`` when there is no other, or as ``run``.
        """
        self._attempts.broke(error, worker.id, self._available(query), worker.resilience)
        return await self._until_one_delivers(query, attempt)

    async def _until_one_delivers(self, query: Query, attempt: Callable[[Lease, int], Awaitable[T]]) -> T:
        router, attempts = self._services.router, self._attempts
        while True:
            if query.tokens >= LONG_PROMPT:
                await self._interrupt.run(turn())
            try:
                lease = router.select(replace(query, tried=attempts.tried) if attempts.tried else query)
            except GatewayError as error:
                wait = attempts.refused(error, lambda: router.patience(query))
            else:
                try:
                    self._facts.selected(lease, attempts.number)
                    if query.tokens >= LONG_PROMPT:
                        # To choose was one step, to write the request is another.
                        await self._interrupt.run(turn())
                    return await attempt(lease, attempts.number)
                except GatewayError as error:
                    router.release(lease, "cancelled" if self._ctx.cancel else outcome_of(error))
                    worker = error.worker if isinstance(error, PartnerFailed) else lease.worker.id
                    if lease.prefill is not None and error.worker_fault and worker == lease.worker.id:
                        self._facts.leg_failed("decode", error.code)
                    own = _resilience(lease, worker)
                    wait = attempts.failed(error, worker, self._available(query), lambda: router.patience(query), own)
                    self._facts.retried(error, worker, attempts.number, wait)
                except BaseException:
                    router.release(lease, "cancelled")
                    raise
            if wait:
                await self._interrupt.run(asyncio.sleep(wait))

    def _available(self, query: Query) -> Callable[[frozenset[str]], bool]:
        return lambda tried: self._services.router.available(replace(query, tried=tried))


def _resilience(lease: Lease, id: str) -> ResilienceSpec | None:
    """What the worker ``id`` among those of ``lease`` has to say about retries."""
    leases = (lease, lease.prefill, *lease.encode)
    return next((each.worker.resilience for each in leases if each is not None and each.worker.id == id), None)
