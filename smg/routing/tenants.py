"""Limits of tenants: generations and tokens per minute, over all processes (spec api-and-ops 4.7, routing 9).

Both are buckets that hold a minute's worth and fill up continuously. Whoever finds one empty is refused at once:
waiting in line would only keep others from their places. A prompt's tokens are taken when it is known, those of the
answer when that is over; that may be more than there was, and then the next request comes too early until the debt is
made up for. A tenant may have rules for models besides: of these the closest one counts, with buckets of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from smg._native.hashes import xxh3_64
from smg._native.region_tenants import REQUESTS, TOKENS
from smg.config.settings import AdmissionSettings
from smg.config.tenants import EACH, TenantLimit, tenant_limit, tenant_model_limit
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


class _Scope(NamedTuple):
    """What has limits and buckets of its own: a tenant, or what it asks of the models that a rule of it is about."""

    tag: int
    limit: TenantLimit
    about: str = ""


class Charge:
    """What one request takes of its tenant's tokens, in each of ``scopes``."""

    def __init__(self, limits: "TenantLimits | None" = None, scopes: Sequence[_Scope] = ()) -> None:
        self._limits = limits
        self._scopes = scopes
        self._taken = 0

    def take(self, tokens: int) -> None:
        """The prompt has about ``tokens`` tokens."""
        self._book(self._taken + tokens)

    def settle(self, usage: Usage) -> None:
        """Prompt and answer are counted. A prompt that nobody counted has what was taken for it."""
        self._book((usage.prompt_tokens or self._taken) + usage.completion_tokens)

    def _book(self, tokens: int) -> None:
        if self._limits is not None and tokens != self._taken:
            for scope in self._scopes:
                cost = (tokens - self._taken) * _MINUTE // scope.limit.tokens
                self._limits.charge(scope.tag, TOKENS, cost)
            self._taken = tokens


FREE = Charge()


class TenantLimits:
    """Knows the limits of each tenant, ``RequestContext.tenant``.

    ``id_of`` gives the id of a model by any name of it, so that rules hold whichever a client uses.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        buckets: Buckets,
        metrics: Metrics,
        id_of: Callable[[str], str] = str,
    ) -> None:
        """Raises ValueError for a limit that cannot be read."""
        self._usual = TenantLimit(settings.tenant_requests_per_minute, settings.tenant_tokens_per_minute)
        self._own = dict(map(tenant_limit, settings.tenant_limit))
        self._any = any(map(any, (self._usual, *self._own.values())))
        self._rules: dict[str, dict[str, TenantLimit]] = {}
        for tenant, (model, limit) in map(tenant_model_limit, settings.tenant_model_limit):
            self._rules.setdefault(tenant, {})[model] = limit
        self._buckets = buckets
        self._metrics = metrics
        self._id_of = id_of

    def enter(self, ctx: RequestContext, model: str) -> Charge:
        """Count a request of ``ctx``'s tenant for the model called ``model``.

        Raises:
            GatewayError: 429 ``tenant_rate_limit_exceeded`` with Retry-After, or what ``id_of`` raises.
        """
        scopes = self._scopes(ctx.tenant, model)
        for scope in scopes:
            if scope.limit.tokens:
                # How many it takes is not known yet. One there must be.
                row, now = self._row(scope.tag)
                wait = self._buckets.tenant_wait(row, TOKENS, now, _MINUTE // scope.limit.tokens, _MINUTE)
                if wait:
                    raise self._refused("tokens", scope.limit.tokens, scope, wait)
        counted: list[_Scope] = []
        for scope in scopes:
            if scope.limit.requests:
                row, now = self._row(scope.tag)
                wait = self._buckets.tenant_take(row, REQUESTS, now, _MINUTE // scope.limit.requests, _MINUTE)
                if wait:
                    for other in counted:
                        self.charge(other.tag, REQUESTS, -(_MINUTE // other.limit.requests))
                    raise self._refused("requests", scope.limit.requests, scope, wait)
                counted.append(scope)
        charged = [scope for scope in scopes if scope.limit.tokens]
        return Charge(self, charged) if charged else FREE

    def charge(self, tag: int, bucket: int, cost: int) -> None:
        """Take what is worth ``cost`` nanoseconds from a bucket of the scope with ``tag``."""
        row, now = self._row(tag)
        self._buckets.tenant_charge(row, bucket, now, cost)

    def _scopes(self, tenant: str, model: str) -> list[_Scope]:
        """What limits the tenant's requests for a model: its own limits, and one rule at most."""
        scopes = []
        if self._any:
            scopes.append(_Scope(tag_of(tenant), self._own.get(tenant, self._usual)))
        if self._rules:
            name = self._id_of(model)
            found = next(filter(None, (_closest(self._rules.get(owner, {}), name) for owner in (tenant, EACH))), None)
            if found is not None:
                pattern, limit = found
                scopes.append(_Scope(tag_of(f"{tenant}\0{pattern}"), limit, f" for {pattern}"))
        return [scope for scope in scopes if any(scope.limit)]

    def _row(self, tag: int) -> tuple[int, int]:
        now = int(clock.monotonic() * _SECOND)
        return self._buckets.tenant_row(tag, now), now

    def _refused(self, what: str, limit: int, scope: _Scope, wait: int) -> GatewayError:
        code = "tenant_rate_limit_exceeded"
        self._metrics.admission_rejections_total.inc(code)
        seconds = max(1.0, wait / _SECOND)
        message = f"more than {limit} {what} per minute{scope.about}; try again in {seconds:.0f} seconds"
        return GatewayError(code, message, retry_after=seconds)


def _closest(rules: Mapping[str, TenantLimit], model: str) -> tuple[str, TenantLimit] | None:
    """The rule about this very model, else the one with the longest beginning of its name."""
    if model in rules:
        return model, rules[model]
    fitting = (pattern for pattern in rules if pattern.endswith("*") and model.startswith(pattern[:-1]))
    longest = max(fitting, key=len, default=None)
    return None if longest is None else (longest, rules[longest])


def tag_of(tenant: str) -> int:
    """What the region knows a tenant by."""
    return (xxh3_64(tenant.encode()) & _TAGS) or 1
