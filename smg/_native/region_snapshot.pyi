"""The registry's snapshot in the region: one writer (control), many readers."""

from smg._native.region_tenants import RegionTenants

class RegionSnapshot(RegionTenants):
    """A blob and its version."""

    def publish(self, blob: bytes) -> int:
        """Publish a new snapshot; returns its version. Raises ValueError when it does not fit."""

    def snapshot_version(self) -> int:
        """0 before the first publish; readers compare this one number per request."""

    def snapshot(self) -> tuple[int, bytes]:
        """(version, blob), never torn."""
