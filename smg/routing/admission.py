"""Admission: how many generations are in flight, and how many start, over all processes of the gateway.

Two limits that know nothing of each other (spec api-and-ops 4.5, case LM-01). The one on concurrency is a true cap: a
place is taken for the request's whole life, its stream included. The one on the rate is a token bucket. Who finds
either exhausted waits in the line (``waiting``), which is bounded too.
"""

from typing import Protocol

from smg.config.settings import AdmissionSettings
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.routing.waiting import Tickets, WaitingLine, queue_full
from smg.telemetry.metrics import Metrics

_SECOND = 1_000_000_000  # nanoseconds


class Counts(Tickets, Protocol):
    """The part of the region that admission counts in."""

    def requests_add(self, process: int, delta: int) -> int: ...

    def requests_total(self) -> int: ...

    def rate_wait(self, now: int, interval: int, burst: int) -> int: ...

    def rate_take(self, now: int, interval: int, burst: int) -> int: ...


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


class Rate:
    """The token bucket: ``per_second`` starts at once, then so many per second; any number when it is not positive."""

    def __init__(self, per_second: int, counts: Counts) -> None:
        self.per_second = per_second
        self._interval = _SECOND // max(1, per_second)
        self._counts = counts

    def wait(self) -> float:
        """Seconds until there is a token; 0 when there is one."""
        if self.per_second <= 0:
            return 0.0
        return self._counts.rate_wait(_now(), self._interval, self.per_second) / _SECOND

    def take(self) -> bool:
        """Take a token; False when there is none."""
        return self.per_second <= 0 or self._counts.rate_take(_now(), self._interval, self.per_second) == 0


class Turns:
    """A place and a token together, as the line waits for them (``waiting.Places``)."""

    def __init__(self, places: InFlight, rate: Rate) -> None:
        self._places = places
        self._rate = rate

    def free(self) -> bool:
        return self._places.free() and self._rate.wait() == 0

    def take(self) -> bool:
        """Take both or neither."""
        if not self._places.take():
            return False
        if self._rate.take():
            return True
        self._places.release()
        return False

    def release(self) -> None:
        """Give the place back; the token is spent."""
        self._places.release()


def _now() -> int:
    return int(clock.monotonic() * _SECOND)


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
    """Lets requests in as far as both limits allow it, and lets ``queue_size`` more wait."""

    def __init__(self, settings: AdmissionSettings, counts: Counts, process: int, metrics: Metrics) -> None:
        self._waits = settings.queue_size > 0
        self._size = settings.queue_size
        self._places = InFlight(settings.max_concurrent_requests, counts, process)
        self._rate = Rate(settings.rate_limit_tokens_per_second, counts)
        self._turns = Turns(self._places, self._rate)
        self._line = WaitingLine(counts, self._turns, process, settings.queue_size, settings.queue_timeout_secs)
        self._metrics = metrics

    def check(self) -> None:
        """Refuse at once what ``acquire`` would refuse, before any work is done for it.

        Raises:
            GatewayError: as ``acquire``.
        """
        if not self._turns.free() and self._line.full():
            raise self._refused(queue_full(self._size) if self._waits else self._over_limit())

    async def acquire(self, ctx: RequestContext) -> AdmissionLease:
        """Admit the request of ``ctx``, maybe after a wait. Cancelling the wait leaves the line.

        Raises:
            GatewayError: 429 with Retry-After: ``rate_limit_exceeded`` where nobody waits, ``queue_full``; 503:
                ``queue_timeout``.
        """
        lease = self.at_once(ctx)
        if lease is None:
            if not self._waits:
                raise self._refused(self._over_limit())
            await self._wait()
            lease = AdmissionLease(self, ctx)
        return lease

    def at_once(self, ctx: RequestContext) -> "AdmissionLease | None":
        """Admit the request of ``ctx`` if it need not wait; None if it has to, or is refused."""
        return None if self._line.occupied() or not self._turns.take() else AdmissionLease(self, ctx)

    def leave(self) -> None:
        """A lease is given back."""
        self._turns.release()
        self._line.advance()

    async def _wait(self) -> None:
        start = clock.monotonic()
        waited = True
        try:
            await self._line.wait()
        except GatewayError as error:
            # Who is turned away from a full line has not waited; who came a moment too late must not look as if it had.
            waited = error.code != "queue_full"
            raise self._refused(error) from None
        finally:
            if waited:
                self._metrics.admission_wait_seconds.observe(clock.monotonic() - start)

    def _over_limit(self) -> GatewayError:
        if self._places.free():
            message = f"too many requests per second (limit {self._rate.per_second}); try again shortly"
            return GatewayError("rate_limit_exceeded", message, retry_after=max(1.0, self._rate.wait()))
        message = f"too many requests at once (limit {self._places.limit}); try again shortly"
        return GatewayError("rate_limit_exceeded", message)

    def _refused(self, error: GatewayError) -> GatewayError:
        self._metrics.admission_rejections_total.inc(error.code)
        return error
