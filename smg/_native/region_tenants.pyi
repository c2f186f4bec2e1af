"""Buckets of tenants in the region: what each has used up lately, over all processes (spec routing 9, 10.1)."""

from smg._native.region_limits import RegionLimits

# Buckets of a tenant.
REQUESTS: int
TOKENS: int

class RegionTenants(RegionLimits):
    """4,096 rows, each of one tenant that is not idle. Times are monotonic nanoseconds; a cost is the time in which
    what was taken comes back.
    """

    def tenant_row(self, tag: int, now: int) -> int:
        """Row of the tenant whose name has the hash ``tag`` (above 0), given to it if it has none.

        When there is no free one near, another tenant's: they share their limits.
        """

    def tenant_wait(self, row: int, bucket: int, now: int, cost: int, period: int) -> int:
        """How long until there is ``cost`` in a bucket that holds ``period``; 0: there is."""

    def tenant_take(self, row: int, bucket: int, now: int, cost: int, period: int) -> int:
        """Take ``cost`` if ``tenant_wait`` is 0; returns what that was."""

    def tenant_charge(self, row: int, bucket: int, now: int, cost: int) -> None:
        """Take ``cost`` whatever there is: a bucket may be in debt. A negative cost is given back."""
