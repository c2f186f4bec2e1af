"""Tries workers until one has begun to answer, whatever kind of backend it is (spec routing 6, field case RL-03)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.retry import Attempts
from smg.routing.router import Lease, Query

T = TypeVar("T")


async def try_workers(
    services: Services,
    ctx: RequestContext,
    interrupt: Interrupt,
    facts: Facts,
    query: Query,
    attempt: Callable[[Lease, int], Awaitable[T]],
) -> T:
    """Run ``attempt(lease, number)`` on one worker after the other; number counts from 1.

    A failed attempt has delivered nothing and gives its lease back here; a good one keeps it.

    Raises:
        GatewayError: the last attempt's error, or ``no_available_workers``.
    """
    router = services.router
    attempts = Attempts(services.settings.routing, ctx)

    def available(tried: frozenset[str]) -> bool:
        return router.available(replace(query, tried=tried))

    while True:
        lease = router.select(replace(query, tried=attempts.tried))
        try:
            facts.selected(lease, router.policy, attempts.number)
            return await attempt(lease, attempts.number)
        except GatewayError as error:
            router.release(lease, "cancelled" if ctx.cancel else outcome_of(error))
            wait = attempts.failed(error, lease.worker.id, available)
            facts.retried(error.code)
        except BaseException:
            router.release(lease, "cancelled")
            raise
        if wait:
            await interrupt.run(asyncio.sleep(wait))
