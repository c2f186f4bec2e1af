"""The worker table of the region, and what is in flight on each worker."""

from collections.abc import Sequence

from smg._native.region_memory import RegionMemory

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

class RegionWorkers(RegionMemory):
    """Raises IndexError for a process, slot or field that does not exist."""

    def worker_get(self, slot: int, field: int) -> int: ...
    def worker_set(self, slot: int, field: int, value: int) -> None: ...
    def worker_add(self, slot: int, field: int, delta: int) -> int:
        """Atomically add; returns the new value."""

    def worker_reset(self, slot: int) -> int:
        """Zero a slot's fields and return its new generation (1 upwards)."""

    def worker_generation(self, slot: int) -> int: ...

    # in-flight: requests and tokens per (process, worker slot); admission counts requests per process
    def inflight_add(self, process: int, slot: int, requests: int, tokens: int) -> None:
        """Raises ValueError for more than 2**20 requests or 2**36 tokens."""

    def inflight(self, slot: int) -> tuple[int, int]:
        """(requests, tokens) of ``slot``, summed over all processes."""

    def inflight_many(self, slots: Sequence[int]) -> list[int]:
        """Requests in flight of each slot."""
