"""What media became, by what they are and how they were processed; the same item is processed once at a time.

One cache per worker process. A 12-megapixel photograph costs 70 ms of decoding and resizing and becomes 24 MB. To copy
these once out of shared memory takes 4 ms on an idle machine and 50 on a busy one, for each hit, and wants a lock that
a dying process could hold; here a hit copies nothing. A conversation that shows its images again in
each turn usually comes on one kept-alive connection, so to the same worker.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from smg.vision.families.base import Tensor

_OVERHEAD = 512  # bytes an entry takes besides its pixels, about


class Processed(NamedTuple):
    """One item: its family's plan, and its part of the primary tensor; None when only the plan was wanted. Not to be
    changed.

    The tensor has the shape ``plan.shape``. ``decode_secs`` is the part of the time that went into decoding.
    """

    plan: Any
    tensor: Tensor | None
    decode_secs: float = 0.0

    @property
    def nbytes(self) -> int:
        return _OVERHEAD + (0 if self.tensor is None else self.tensor.nbytes)


class _Flight:
    """Work in progress and how many wait for it."""

    def __init__(self, task: asyncio.Task[Processed]) -> None:
        self.task = task
        self.waiting = 0


class ProcessedCache:
    """At most ``max_bytes``, the least recently used go first; 0 keeps nothing but still joins equal work."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._entries: OrderedDict[bytes, Processed] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}
        self.nbytes = 0
        self.hits = 0
        self.misses = 0

    async def get(self, key: bytes, process: Callable[[], Awaitable[Processed]]) -> Processed:
        """What ``key`` stands for; ``process`` makes it unless it is known or being made.

        Work ends early when nobody waits for it any more. Raises what ``process`` raises, also to those who joined.
        """
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            self.hits += 1
            return found
        flight = self._flights.get(key)
        if flight is None:
            self.misses += 1
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._process(key, process)))
        else:
            self.hits += 1
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                flight.task.cancel()
                self._forget(key, flight)

    async def _process(self, key: bytes, process: Callable[[], Awaitable[Processed]]) -> Processed:
        flight = self._flights[key]
        try:
            result = await process()
        finally:
            self._forget(key, flight)
        self._keep(key, result)
        return result

    def _forget(self, key: bytes, flight: _Flight) -> None:
        # After a cancellation a new flight may have the key.
        if self._flights.get(key) is flight:
            del self._flights[key]

    def _keep(self, key: bytes, result: Processed) -> None:
        if result.nbytes > self._max:
            return
        self._entries[key] = result
        self.nbytes += result.nbytes
        while self.nbytes > self._max:
            _, oldest = self._entries.popitem(last=False)
            self.nbytes -= oldest.nbytes
