"""The memory all processes of one gateway share (memfd): worker table, in-flight matrix, snapshot, metric cells.

C11 atomics, no locks across Python code, no float atomics (fixed point). Losing the region costs speed and counters,
never data. Every row of the process dimension is written by its own process only, so a killed process is undone by
``clear_process``. ``process`` is 0 for control, 1…N for request workers, N + 1 for the supervisor.
"""

from smg._native.prefix_index import PrefixIndex
from smg._native.region_memory import LAYOUT_VERSION as LAYOUT_VERSION
from smg._native.region_series import COUNTER as COUNTER
from smg._native.region_series import GAUGE as GAUGE
from smg._native.region_series import MAX_SERIES_KEY as MAX_SERIES_KEY
from smg._native.region_series import RegionSeries
from smg._native.region_workers import COMPUTED as COMPUTED
from smg._native.region_workers import FAILURES as FAILURES
from smg._native.region_workers import LAST_OK as LAST_OK
from smg._native.region_workers import PROCESSED as PROCESSED
from smg._native.region_workers import QUEUED_TOKENS as QUEUED_TOKENS
from smg._native.region_workers import RUNNING as RUNNING
from smg._native.region_workers import STATUS as STATUS
from smg._native.region_workers import USAGE as USAGE
from smg._native.region_workers import WAITING as WAITING

class Region(RegionSeries):
    """One mapping of the region. Create before the fork; children use the inherited object or ``attach(fd)``.

    Raises IndexError for a process, slot, field or sequence that does not exist.
    """

    index: PrefixIndex | None  # of the same gateway; None in a region that was attached, not created or inherited

    @staticmethod
    def create(
        processes: int,
        workers: int = 4096,
        series: int = 4096,
        snapshot_bytes: int = 4 << 20,
        index_bytes: int = 1 << 20,
    ) -> Region:
        """Make a new region and its prefix index. ``processes`` counts all rows (N + 2). Raises OSError, ValueError."""

    @staticmethod
    def attach(fd: int) -> Region:
        """Map an existing region through a duplicate of ``fd``.

        Raises ValueError when magic, layout version or size do not fit.
        """

    def close(self) -> None:
        """Unmap, and close ``fd``; every other call raises ValueError from then on. Idempotent."""

    # processes
    def claim_process(self, process: int, pid: int) -> None:
        """Write ``pid`` into the process's row (shown by tools)."""

    def process_pid(self, process: int) -> int: ...
    def clear_process(self, process: int) -> None:
        """Undo a dead process: its pid, in-flight rows, admitted and waiting requests and gauges become 0; so in the
        prefix index.

        Its counters stay in the row, and the process that takes the row over counts on from there: no scrape, not
        even one taken meanwhile, sees a sum go down.
        """

    # drain
    def set_draining(self) -> None:
        """Tell all processes that the gateway shuts down: readiness answers 503 from now on. There is no way back."""

    def draining(self) -> bool: ...

    # round robin and other shared sequences
    def sequence_next(self, sequence: int) -> int:
        """Fetch-and-add on one of 256 shared counters; returns the value before (0 at first)."""
