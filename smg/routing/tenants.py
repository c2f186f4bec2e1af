"""Limits of tenants: generations and tokens per minute, over all processes (spec api-and-ops 4.7, routing 9).

Both are buckets that hold a minute's worth and fill up continuously. Whoever finds one empty is refused at once:
waiting in line would only keep others from their places. A prompt's tokens are taken when it is known, those of the
answer when that is over; that may be more than there was, and then the next request comes too early until the debt is
made up for.
"""

from typing import Protocol

from smg._native.hashes import xxh3_64
from smg._native.region_tenants import REQUESTS, TOKENS
from smg.config.settings import AdmissionSettings
from smg.config.tenants import TenantLimit, tenant_limit
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Usage
from smg.telemetry.metrics import Metrics

_SECOND = 1_000_000_000  # nanoseconds
_MINUTE = 60 * _SECOND
_TAGS = (1 << 63) - 1


class Buckets(Protocol):
    """The part of the region that keeps the buckets."""

    def tenant_row(self, tag: int, now: int) -> int: ...

    def tenant_wait(self, row: int, bucket: int, now: int, cost: int, period: int) -> int: ...

    def tenant_take(self, row: int, bucket: int, now: int, cost: int, period: int) -> int: ...

    def tenant_charge(self, row: int, bucket: int, now: int, cost: int) -> None: ...


class Charge:
    """What one request takes of its tenant's tokens."""

    def __init__(self, limits: "TenantLimits | None" = None, tag: int = 0, per_minute: int = 0) -> None:
        self._limits = limits
        self._tag = tag
        self._per_minute = per_minute
        self._taken = 0

    def take(self, tokens: int) -> None:
        """The prompt has about ``tokens`` tokens."""
        self._book(self._taken + tokens)

    def settle(self, usage: Usage) -> None:
        """Prompt and answer are counted. A prompt that nobody counted has what was taken for it."""
        self._book((usage.prompt_tokens or self._taken) + usage.completion_tokens)

    def _book(self, tokens: int) -> None:
        if self._limits is not None and tokens != self._taken:
            self._limits.charge(self._tag, (tokens - self._taken) * _MINUTE // self._per_minute)
            self._taken = tokens


FREE = Charge()


class TenantLimits:
    """Knows the limits of each tenant, ``RequestContext.tenant``."""

    def __init__(self, settings: AdmissionSettings, buckets: Buckets, metrics: Metrics) -> None:
        """Raises ValueError for a limit that cannot be read."""
        self._usual = TenantLimit(settings.tenant_requests_per_minute, settings.tenant_tokens_per_minute)
        self._own = dict(map(tenant_limit, settings.tenant_limit))
        self._any = any(map(any, (self._usual, *self._own.values())))
        self._buckets = buckets
        self._metrics = metrics

    def enter(self, ctx: RequestContext) -> Charge:
        """Count a request of ``ctx``'s tenant.

        Raises:
            GatewayError: 429 ``tenant_rate_limit_exceeded`` with Retry-After.
        """
        limit = self._own.get(ctx.tenant, self._usual) if self._any else None
        if limit is None or not any(limit):
            return FREE
        tag, now = tag_of(ctx.tenant), _now()
        row = self._buckets.tenant_row(tag, now)
        if limit.tokens:
            # How many it takes is not known yet. One there must be.
            wait = self._buckets.tenant_wait(row, TOKENS, now, _MINUTE // limit.tokens, _MINUTE)
            if wait:
                raise self._refused("tokens", limit.tokens, wait)
        if limit.requests:
            wait = self._buckets.tenant_take(row, REQUESTS, now, _MINUTE // limit.requests, _MINUTE)
            if wait:
                raise self._refused("requests", limit.requests, wait)
        return Charge(self, tag, limit.tokens) if limit.tokens else FREE

    def charge(self, tag: int, cost: int) -> None:
        """Take what is worth ``cost`` nanoseconds of the tokens of the tenant with ``tag``."""
        now = _now()
        self._buckets.tenant_charge(self._buckets.tenant_row(tag, now), TOKENS, now, cost)

    def _refused(self, what: str, limit: int, wait: int) -> GatewayError:
        code = "tenant_rate_limit_exceeded"
        self._metrics.admission_rejections_total.inc(code)
        seconds = max(1.0, wait / _SECOND)
        message = f"more than {limit} {what} per minute; try again in {seconds:.0f} seconds"
        return GatewayError(code, message, retry_after=seconds)


def tag_of(tenant: str) -> int:
    """What the region knows a tenant by."""
    return (xxh3_64(tenant.encode()) & _TAGS) or 1


def _now() -> int:
    return int(clock.monotonic() * _SECOND)
