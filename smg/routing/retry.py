"""When a failed attempt is tried again, where and after what wait (spec routing 6; api-and-ops 4.1).

``failed`` and ``refused`` are for attempts that have delivered nothing; the caller guarantees it (field case RL-03).
``broke`` is for a generation that a worker has begun: it may only go on elsewhere, with what is there already.
"""

import random
from collections.abc import Callable

from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.fleet.resilience import ResilienceSpec
from smg.routing.pairing import PartnerFailed
from smg.routing.targets import TargetDown

BUDGET_WINDOW_SECS = 10.0
# Retries that are always allowed within the window: a gateway with little to do is no storm.
BUDGET_FLOOR = 10
# Longest wait between two looks for a breaker that lets a request through.
REFUSED_SECS = 1.0

# Whether somebody is there besides these workers; seconds until a breaker may let somebody through, None for never.
Available = Callable[[frozenset[str]], bool]
Patience = Callable[[], float | None]


class RetryBudget:
    """What retries may add to the load, as a part of the requests of the last seconds; of one process.

    The first attempt on another worker is free (of a pair: for each leg): when an engine dies, all its requests need
    one. What is tried more often than that comes out of the budget, so that retries don't keep a busy fleet busy.
    """

    def __init__(self, ratio: float = 0.2) -> None:
        self._ratio = ratio
        self._half = 0
        # (requests, retries) of this half of the window and of the one before.
        self._now = [0, 0]
        self._before = [0, 0]

    def request(self) -> None:
        """A request begins."""
        self._turn()
        self._now[0] += 1

    def take(self) -> bool:
        """Take one retry out of the budget; False when there is none left."""
        self._turn()
        requests, retries = (now + before for now, before in zip(self._now, self._before, strict=True))
        if retries >= max(BUDGET_FLOOR, self._ratio * requests):
            return False
        self._now[1] += 1
        return True

    def _turn(self) -> None:
        half = int(clock.monotonic() / (BUDGET_WINDOW_SECS / 2))
        if half != self._half:
            self._before = self._now if half == self._half + 1 else [0, 0]
            self._now = [0, 0]
            self._half = half


class Attempts:
    """The attempts of one request. ``number`` counts them from 1; ``tried`` holds workers to avoid."""

    def __init__(self, settings: RoutingSettings, ctx: RequestContext, budget: RetryBudget) -> None:
        self._common = settings
        self._ctx = ctx
        self._budget = budget
        self._go_by(None)
        self._waits = 0
        self._waited = 0.0
        self.number = 1
        self.tried: frozenset[str] = frozenset()
        self._legs: set[str] = set()  # of the pairs' engines that have failed; "" is the one that answers

    def failed(
        self,
        error: GatewayError,
        worker: str,
        available: Available,
        patience: Patience,
        own: ResilienceSpec | None = None,
    ) -> float:
        """Book a failed attempt on ``worker`` and return the seconds to wait before the next one. ``own`` is what the
        worker has to say about it.

        Another worker is tried at once. When all have failed they are tried again after a back-off, or after what a
        busy one asked for (Retry-After), or once a circuit breaker lets requests through again.

        Raises:
            GatewayError: ``error`` itself, when there is no further attempt.
        """
        if not error.retryable:
            raise error
        self._go_by(own)
        self.tried |= {worker}
        # Of a pair each leg may have died, and all requests need another one of each.
        leg = error.leg if isinstance(error, PartnerFailed) else ""
        free = leg not in self._legs
        self._legs.add(leg)
        if available(self.tried):
            return self._next(error, 0.0, free=free)
        self.tried = frozenset()
        return self._next(error, self._wait(error, 0.0 if available(self.tried) else patience()))

    def refused(self, error: GatewayError, patience: Patience) -> float:
        """Nobody could be asked: wait for the circuit breakers, if nothing else holds the workers back.

        This is no attempt and no load on anybody; but all such waits together are not longer than the longest back-off.

        Raises:
            GatewayError: ``error`` itself, when there is no use in waiting or it has taken too long.
        """
        # A named worker that has just failed may be asked once more.
        hopeless = isinstance(error, TargetDown) and not self.tried
        self.tried = frozenset()
        least = patience() if error.code == "no_available_workers" and not hopeless else None
        # A permit that another request gives back is not told to anybody: look often enough.
        wait = min(self._wait(error, least), max(least or 0.0, REFUSED_SECS))
        self._waited += wait
        if self._limit == 1 or self._waited > self._settings.retry_max_backoff_ms / 1000:
            raise error
        self._allow(error, wait)
        return wait

    def broke(self, error: GatewayError, worker: str, available: Available, own: ResilienceSpec | None = None) -> None:
        """A worker broke off what it had begun: another one may go on. Raises ``error`` when there is none."""
        self._go_by(own)
        self.tried |= {worker}
        if not available(self.tried):
            raise error
        self._next(error, 0.0, free=self.number == 1)

    def _go_by(self, own: ResilienceSpec | None) -> None:
        """Go by the settings, and by what the worker that has failed last has of its own."""
        self._settings = self._common if own is None else own.over(self._common)
        self._limit = 1 if self._settings.disable_retries else self._settings.retry_max_retries

    def _next(self, error: GatewayError, wait: float, *, free: bool = False) -> float:
        """Allow one more attempt after ``wait`` seconds, or raise ``error``."""
        self._allow(error, wait)
        if self.number >= self._limit or not (free or self._budget.take()):
            raise error
        self.number += 1
        return wait

    def _allow(self, error: GatewayError, wait: float) -> None:
        """Raise ``error`` when nobody would wait so long."""
        remaining = self._ctx.remaining()
        if self._ctx.cancel or (remaining is not None and wait >= remaining):
            raise error

    def _wait(self, error: GatewayError, least: float | None) -> float:
        """The back-off, and not less than ``least`` or what the worker asked for.

        Raises ``error`` where ``least`` is more than any back-off: its client is told when to come again instead.
        """
        delay = self._settings.retry_initial_backoff_ms * self._settings.retry_backoff_multiplier**self._waits
        self._waits += 1
        longest = self._settings.retry_max_backoff_ms / 1000
        delay = min(delay / 1000, longest)
        jitter = self._settings.retry_jitter_factor
        delay *= 1 + random.uniform(-jitter, jitter)
        asked = error.retry_after if not error.worker_fault and error.code != "no_available_workers" else None
        if least is None or least > longest:
            raise error
        return max(delay, least, asked or 0.0)
