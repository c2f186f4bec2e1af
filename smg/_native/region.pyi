"""The memory all processes of one gateway share (memfd): worker table, in-flight matrix, snapshot, metric cells.

C11 atomics, no locks across Python code, no float atomics (fixed point). Losing the region costs speed and counters,
never data. Every row of the process dimension is written by its own process only, so a killed process is undone by
``clear_process``. ``process`` is 0 for control, 1…N for request workers, N + 1 for the supervisor.
"""

from collections.abc import Sequence

from smg._native.prefix_index import PrefixIndex

LAYOUT_VERSION: int
COUNTER: int  # monotone; a dead process's counts stay
GAUGE: int  # signed; a dead process's value goes
MAX_SERIES_KEY: int  # bytes of one series key

# Fields of a worker slot (i64 each), see worker_get/worker_set/worker_add.
STATUS: int  # 0 free, 1 pending, 2 ready, 3 not_ready, 4 failed, 5 draining
FAILURES: int  # transport failures seen by request workers since the last probe success
PROCESSED: int  # finished requests
LAST_OK: int  # monotonic milliseconds of the last token or good probe
RUNNING: int  # engine's own report
WAITING: int
USAGE: int  # KV usage, millionths
QUEUED_TOKENS: int
COMPUTED: int  # prompt tokens it was given to compute lately; control halves them now and then

class Region:
    """One mapping of the region. Create before the fork; children use the inherited object or ``attach(fd)``.

    Raises IndexError for a process, slot, field or sequence that does not exist.
    """

    fd: int
    boot_id: int
    index: PrefixIndex | None  # of the same gateway; None in a region that was attached, not created or inherited
    processes: int
    workers: int
    series: int

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

    # in-flight: requests and tokens per (process, worker slot); admission counts requests per process
    def inflight_add(self, process: int, slot: int, requests: int, tokens: int) -> None:
        """Raises ValueError for more than 2**20 requests or 2**36 tokens."""

    def inflight(self, slot: int) -> tuple[int, int]:
        """(requests, tokens) of ``slot``, summed over all processes."""

    def inflight_many(self, slots: Sequence[int]) -> list[int]:
        """Requests in flight of each slot."""

    def requests_add(self, process: int, delta: int) -> int:
        """Count admitted requests of a process; returns the new sum over all processes."""

    def requests_total(self) -> int: ...

    # the line before admission: how many wait, and who is next
    def waiting_add(self, process: int, delta: int) -> int:
        """Count requests of a process that wait to be admitted; returns the new sum over all processes."""

    def waiting_total(self) -> int: ...
    def waiting_ticket(self) -> int:
        """Draw the next place in the line of all processes (1 upwards)."""

    def waiting_head_set(self, process: int, ticket: int) -> None:
        """Show the lowest ticket that waits in the process; 0 when none does."""

    def waiting_head(self) -> int:
        """Lowest ticket that any process shows; 0 when nobody waits."""

    # one token bucket for all processes: ``burst`` tokens, and one more every ``interval`` nanoseconds
    def rate_wait(self, now: int, interval: int, burst: int) -> int:
        """Nanoseconds until there is a token, at the monotonic time ``now`` (nanoseconds); 0: there is one."""

    def rate_take(self, now: int, interval: int, burst: int) -> int:
        """Take a token if ``rate_wait`` is 0; returns what that was."""

    # worker slots
    def worker_get(self, slot: int, field: int) -> int: ...
    def worker_set(self, slot: int, field: int, value: int) -> None: ...
    def worker_add(self, slot: int, field: int, delta: int) -> int:
        """Atomically add; returns the new value."""

    def worker_reset(self, slot: int) -> int:
        """Zero a slot's fields and return its new generation (1 upwards)."""

    def worker_generation(self, slot: int) -> int: ...

    # round robin and other shared sequences
    def sequence_next(self, sequence: int) -> int:
        """Fetch-and-add on one of 256 shared counters; returns the value before (0 at first)."""

    # registry snapshot: one writer (control), many readers
    def publish(self, blob: bytes) -> int:
        """Publish a new snapshot; returns its version. Raises ValueError when it does not fit."""

    def snapshot_version(self) -> int:
        """0 before the first publish; readers compare this one number per request."""

    def snapshot(self) -> tuple[int, bytes]:
        """(version, blob), never torn."""

    # metric series
    def find_series(self, key: bytes, kind: int) -> int:
        """Index of the series ``key``, made when new; -1 when the table is full.

        Raises ValueError for a key that is too long or exists as another kind.
        """

    def cell_add(self, process: int, index: int, amount: int) -> None:
        """Add to the process's cell; an index of -1 (the table was full) is ignored, here and in ``cell_set``."""

    def cell_set(self, process: int, index: int, value: int) -> None: ...
    def read_series(self) -> list[tuple[bytes, int, int]]:
        """(key, kind, sum over all processes) of every series, in order of creation."""
