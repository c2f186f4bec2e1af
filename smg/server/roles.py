"""What the supervisor keeps alive: one Role per process, with its restarts and their back-off."""

from collections.abc import Callable

from smg.core import clock
from smg.server.process import Child

# A process that has run this long had a good start: its next failure is the first of a new series.
STEADY_SECONDS = 30.0
FIRST_DELAY = 0.25
# With the time a process takes to start this keeps "back within five seconds".
LONGEST_DELAY = 2.0
# A process that has never run so long, and has exited so many times with an error, cannot be started at all.
STARTED_SECONDS = 10.0
HOPELESS_STARTS = 3


class Role:
    """One process to keep alive.

    Args:
        name: what logs call it (``worker 2``).
        kind: ``control``, ``worker`` or ``engine``; the label of the restart counter.
        process: its row in the region, or None when it has none.
        start: forks it.
    """

    def __init__(self, name: str, kind: str, process: int | None, start: Callable[[], Child]) -> None:
        self.name = name
        self.kind = kind
        self.process = process
        self.child: Child | None = None
        self.restart_at: float | None = None
        self._start = start
        self._started = 0.0
        self._failures = 0
        self._ran = False
        self._bad_starts = 0

    @property
    def hopeless(self) -> bool:
        """Whether it has failed by itself, and only so, since the gateway was started."""
        return not self._ran and self._bad_starts >= HOPELESS_STARTS

    def start(self) -> Child:
        """Fork the process now."""
        self.restart_at = None
        self._started = clock.monotonic()
        self.child = self._start()
        return self.child

    def ended(self, how: str = "") -> float:
        """The process has ended: plan its restart and return the delay in seconds (0 for the first failure).

        ``how`` is what ``process.reap`` says: who was killed was not at fault.
        """
        now = clock.monotonic()
        self._ran = self._ran or now - self._started >= STARTED_SECONDS
        self._bad_starts = self._bad_starts + 1 if how.startswith("exit code") and how != "exit code 0" else 0
        if now - self._started >= STEADY_SECONDS:
            self._failures = 0
        delay = 0.0 if self._failures == 0 else min(LONGEST_DELAY, FIRST_DELAY * 2 ** (self._failures - 1))
        self._failures += 1
        self.child = None
        self.restart_at = now + delay
        return delay
