"""Admission: how many generations are in flight at once, over all processes of the gateway (spec api-and-ops 4.5).

The limit is a true cap on concurrency: a place is taken for the request's whole life, its stream included. Who finds
none waits in the line (``waiting``), which is bounded too.
"""

from typing import Protocol

from smg.config.settings import AdmissionSettings
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.routing.waiting import Tickets, WaitingLine, queue_full
from smg.telemetry.metrics import Metrics


class Counts(Tickets, Protocol):
    """The part of the region that admission counts in."""

    def requests_add(self, process: int, delta: int) -> int: ...

    def requests_total(self) -> int: ...


class InFlight:
    """The places: ``limit`` of them over all processes, or any number when it is not positive."""

    def __init__(self, limit: int, counts: Counts, process: int) -> None:
        self.limit = limit
        self._counts = counts
        self._process = process

    def free(self) -> bool:
        """Whether there is a place at this moment."""
        return self.limit <= 0 or self._counts.requests_total() < self.limit

    def take(self) -> bool:
        """Take a place; False when there is none."""
        # Looked at first, because counting makes others believe for a moment that the place is taken.
        if not self.free():
            return False
        if self._counts.requests_add(self._process, 1) <= self.limit or self.limit <= 0:
            return True
        self.release()
        return False

    def release(self) -> None:
        """Give a place back."""
        self._counts.requests_add(self._process, -1)


class AdmissionLease:
    """One admitted request."""

    def __init__(self, admission: "Admission", ctx: RequestContext) -> None:
        self._admission = admission
        self._ctx = ctx
        self._held = True

    def release(self) -> None:
        """Give the place to whoever is next. Idempotent."""
        if self._held:
            self._held = False
            self._admission.leave()

    def cancel(self, reason: str) -> None:
        """Take the place away: the request is cancelled and releases by itself when it has wound up."""
        self._ctx.cancel.cancel(reason)


class Admission:
    """Lets requests in up to ``max_concurrent_requests`` and lets ``queue_size`` more wait."""

    def __init__(self, settings: AdmissionSettings, counts: Counts, process: int, metrics: Metrics) -> None:
        self._waits = settings.queue_size > 0
        self._size = settings.queue_size
        self._places = InFlight(settings.max_concurrent_requests, counts, process)
        self._line = WaitingLine(counts, self._places, process, settings.queue_size, settings.queue_timeout_secs)
        self._metrics = metrics

    def check(self) -> None:
        """Refuse at once what ``acquire`` would refuse, before any work is done for it.

        Raises:
            GatewayError: as ``acquire``.
        """
        if not self._places.free() and self._line.full():
            raise self._refused(queue_full(self._size) if self._waits else self._over_limit())

    async def acquire(self, ctx: RequestContext) -> AdmissionLease:
        """Admit the request of ``ctx``, maybe after a wait. Cancelling the wait leaves the line.

        Raises:
            GatewayError: 429 with Retry-After: ``rate_limit_exceeded`` where nobody waits, ``queue_full``; 503:
                ``queue_timeout``.
        """
        if self._line.occupied() or not self._places.take():
            if not self._waits:
                raise self._refused(self._over_limit())
            await self._wait()
        return AdmissionLease(self, ctx)

    def leave(self) -> None:
        """A lease is given back."""
        self._places.release()
        self._line.advance()

    async def _wait(self) -> None:
        start = clock.monotonic()
        try:
            await self._line.wait()
        except GatewayError as error:
            raise self._refused(error) from None
        finally:
            self._metrics.admission_wait_seconds.observe(clock.monotonic() - start)

    def _over_limit(self) -> GatewayError:
        message = f"too many requests at once (limit {self._places.limit}); try again shortly"
        return GatewayError("rate_limit_exceeded", message)

    def _refused(self, error: GatewayError) -> GatewayError:
        self._metrics.admission_rejections_total.inc(error.code)
        return error
