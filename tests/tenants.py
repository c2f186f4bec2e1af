"""What limits of tenants have counted, for tests of what counts."""

import time

from smg._native.region_tenants import REQUESTS, TOKENS
from smg.config.settings import AdmissionSettings
from smg.pipeline.services import Services
from smg.routing.tenants import TenantLimits, tag_of

PER_MINUTE = 60
SECOND = 1_000_000_000


def limit(services: Services) -> None:
    """Limit each tenant so slowly that little comes back during a test."""
    settings = AdmissionSettings(tenant_requests_per_minute=PER_MINUTE, tenant_tokens_per_minute=PER_MINUTE)
    services.tenants = TenantLimits(settings, services.region, services.metrics)


def used(services: Services, tenant: str) -> tuple[int, int]:
    """Requests and tokens that count against ``tenant``."""
    now = time.monotonic_ns()
    row = services.region.tenant_row(tag_of(tenant), now)
    # One of either is a second; those that came back in the meantime are rounded up again.
    requests, tokens = (services.region.tenant_wait(row, bucket, now, 0, 0) for bucket in (REQUESTS, TOKENS))
    return -(-requests // SECOND), -(-tokens // SECOND)
