"""Which rows of the region's worker table are free."""

import heapq
from collections import deque
from collections.abc import Iterable

from smg.core import clock

# Request workers read the snapshot of a large fleet in turns. For so long they may still take a slot for that of the
# worker that has left it.
REST_SECS = 5.0


class FreeSlots:
    """The free slots: the lowest is taken first. One that was just left rests, as long as there are others."""

    def __init__(self, slots: Iterable[int]) -> None:
        self._free = sorted(slots)
        self._resting: deque[tuple[float, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._free or self._resting)

    def give(self, slot: int, rest: bool = False) -> None:
        """Have ``slot`` back; with ``rest`` it is not given out again at once."""
        if rest:
            self._resting.append((clock.monotonic() + REST_SECS, slot))
        else:
            heapq.heappush(self._free, slot)

    def take(self) -> int:
        """Take the lowest slot, or the one that has rested longest. Raises IndexError when there is none."""
        while self._resting and self._resting[0][0] <= clock.monotonic():
            heapq.heappush(self._free, self._resting.popleft()[1])
        return heapq.heappop(self._free) if self._free else self._resting.popleft()[1]
