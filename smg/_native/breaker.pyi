"""Circuit breakers in the shared region: one per worker slot, the same for all processes (spec routing 4.4, 10.3).

A breaker opens when enough requests in a row have failed, or enough within a window and at least as many as went
well. After a pause it is half open and lets a few requests through at a time: enough successes close it, one failure
opens it again. Only requests that hold a permit decide then; what was sent before the breaker opened does not.
"""

from smg._native.region import Region

CLOSED: int
OPEN: int
HALF_OPEN: int

# Outcomes of a request, for ``leave``.
FAILED: int
NEUTRAL: int
SUCCEEDED: int

REFUSED: int  # of ``enter``

class Breakers:
    """All breakers of a region. Times are milliseconds of the monotonic clock; None means now."""

    def __init__(self, region: Region, failures: int, successes: int, pause: int, window: int) -> None:
        """Every process must give the same numbers.

        ``failures`` in a row or in the ``window`` (milliseconds) open a breaker for ``pause`` milliseconds;
        ``successes`` close it, and that many requests may run on a half-open one at a time (at most 100).

        Raises ValueError for numbers out of range.
        """

    def enter(self, slot: int, now: int | None = None) -> int:
        """Ask to send a request to ``slot``: a permit to give back with ``leave`` (0: closed), or REFUSED.

        Permits that nobody gives back, because a process died, are given out anew after a pause.
        """

    def leave(self, slot: int, permit: int, outcome: int, now: int | None = None) -> tuple[int, int] | None:
        """The request is over. Returns (state before, state now) when this changed the breaker's state."""

    def state(self, slot: int) -> int: ...
    def failures(self, slot: int) -> int:
        """Failures in a row, as far as they count."""

    def wait(self, slot: int, now: int | None = None) -> int:
        """Milliseconds until the breaker lets a request through; 0 when it does."""

    def reset(self, slot: int, now: int | None = None) -> int:
        """Close the breaker and forget its record; returns the state before.

        For two seconds failures do not count: processes whose connections were refused do not notice at once that the
        worker is back.
        """
