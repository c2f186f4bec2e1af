"""Admission: how many requests are in flight at once, over all processes of the gateway.

The limit is a true cap on concurrency: a slot is taken for the request's whole life, its stream included.
"""

from typing import Protocol

from smg.config.settings import AdmissionSettings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError


class Counts(Protocol):
    """The region's count of admitted requests."""

    def requests_add(self, process: int, delta: int) -> int: ...


class AdmissionLease:
    """One admitted request."""

    def __init__(self, counts: Counts, process: int, ctx: RequestContext) -> None:
        self._counts = counts
        self._process = process
        self._ctx = ctx
        self._held = True

    def release(self) -> None:
        """Give the slot back. Idempotent."""
        if self._held:
            self._held = False
            self._counts.requests_add(self._process, -1)

    def cancel(self, reason: str) -> None:
        """Take the slot away: the request is cancelled and releases by itself when it has wound up."""
        self._ctx.cancel.cancel(reason)


class Admission:
    """Lets requests in up to ``max_concurrent_requests``; -1 and 0 mean no limit."""

    def __init__(self, settings: AdmissionSettings, counts: Counts, process: int) -> None:
        self._limit = settings.max_concurrent_requests
        self._counts = counts
        self._process = process

    async def acquire(self, ctx: RequestContext) -> AdmissionLease:
        """Admit the request of ``ctx``.

        Raises:
            GatewayError: ``rate_limit_exceeded`` (429, with Retry-After).
        """
        # Count first, then compare: two processes that look before they count would both let one too many in.
        total = self._counts.requests_add(self._process, 1)
        lease = AdmissionLease(self._counts, self._process, ctx)
        if 0 < self._limit < total:
            lease.release()
            raise GatewayError(
                "rate_limit_exceeded", f"too many requests at once (limit {self._limit}); try again shortly"
            )
        return lease
