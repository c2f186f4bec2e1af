"""Metric cells in the region: a series has a cell for each process."""

from smg._native.region_snapshot import RegionSnapshot

COUNTER: int  # monotone; a dead process's counts stay
GAUGE: int  # signed; a dead process's value goes
MAX_SERIES_KEY: int  # bytes of one series key

class RegionSeries(RegionSnapshot):
    """Series by key."""

    def find_series(self, key: bytes, kind: int) -> int:
        """Index of the series ``key``, made when new; -1 when the table is full.

        Raises ValueError for a key that is too long or exists as another kind.
        """

    def cell_add(self, process: int, index: int, amount: int) -> None:
        """Add to the process's cell; an index of -1 (the table was full) is ignored, here and in ``cell_set``."""

    def cell_set(self, process: int, index: int, value: int) -> None: ...
    def series_end(self) -> int:
        """One more than the last place that a series has; a process killed half-way may have left a place empty."""

    def read_series(self, start: int = 0, count: int = -1) -> list[tuple[bytes, int, int]]:
        """(key, kind, sum over all processes) of the series at ``count`` places from ``start`` on, all for -1, in order
        of creation. Of one key there may be series at several places, which are added up when they are read together.

        Raises IndexError for a negative ``start``.
        """
