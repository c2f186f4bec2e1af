"""When a failed attempt is tried again, where and after what wait (spec routing 6; api-and-ops 4.1).

Only attempts that have delivered nothing come here; the caller guarantees it (field case RL-03).
"""

import random
from collections.abc import Callable

from smg.config.settings import RoutingSettings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError

_MULTIPLIER = 1.5
_JITTER = 0.2


class Attempts:
    """The attempts of one request. ``number`` counts them from 1; ``tried`` holds workers to avoid."""

    def __init__(self, settings: RoutingSettings, ctx: RequestContext) -> None:
        self._settings = settings
        self._ctx = ctx
        self._limit = 1 if settings.disable_retries else settings.retry_max_retries
        self._waits = 0
        self.number = 1
        self.tried: frozenset[str] = frozenset()

    def failed(self, error: GatewayError, worker: str, available: Callable[[frozenset[str]], bool]) -> float:
        """Book a failed attempt on ``worker`` and return the seconds to wait before the next one.

        Another worker is tried at once. When all have failed they are tried again after a back-off, or after what a
        busy one asked for (Retry-After).

        Raises:
            GatewayError: ``error`` itself, when there is no further attempt.
        """
        if not error.retryable or self.number >= self._limit or self._ctx.cancel:
            raise error
        self.tried |= {worker}
        wait = 0.0
        if not available(self.tried):
            self.tried = frozenset()
            if not available(self.tried):
                raise error
            wait = self._wait(error)
        remaining = self._ctx.remaining()
        if remaining is not None and wait >= remaining:
            raise error
        self.number += 1
        return wait

    def _wait(self, error: GatewayError) -> float:
        delay = self._settings.retry_initial_backoff_ms * _MULTIPLIER**self._waits
        self._waits += 1
        delay = min(delay, self._settings.retry_max_backoff_ms) / 1000
        delay *= 1 + random.uniform(-_JITTER, _JITTER)
        if not error.worker_fault and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        return delay
