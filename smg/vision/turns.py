"""Whose media item is next: requests take turns, and who wants little goes before who wants much.

A queue that knows only the order of arrival lets one request with a few huge images stop everybody else for as long as
they take (spec multimodal 18). Here the requests that wait go round; an item that is cheaper than the one whose turn it
is goes before it, as long as those that went before have not used more work than the turns themselves. So a small item
waits for the one that is running, and a large one for twice its share at most.
"""

import heapq
from collections import OrderedDict
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

# What may go before others at first, and at most: an ordinary photograph, and one of the largest images.
_FIRST = 1 << 24
_MOST = 1 << 28


class Turns(Generic[T]):
    """Items that wait, each with a weight (about pixels) and a request that it belongs to. Not thread-safe."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[object, list[tuple[int, int, T]]] = OrderedDict()
        self._numbers = count()
        self._spare = _FIRST

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, request: object, weight: int, item: T) -> None:
        """``item`` waits for a turn of ``request``, where the lightest is first."""
        heapq.heappush(self._lanes.setdefault(request, []), (weight, next(self._numbers), item))

    def take(self) -> T:
        """Remove what is next. Raises LookupError when nothing waits."""
        if not self._lanes:
            raise LookupError("nothing waits")
        first = next(iter(self._lanes))
        lightest = min(self._lanes, key=lambda request: self._lanes[request][0][:2])
        weight = self._lanes[lightest][0][0]
        if weight < self._lanes[first][0][0] and weight <= self._spare:
            self._spare -= weight
            return self._pop(lightest)
        self._spare = min(self._spare + self._lanes[first][0][0], _MOST)
        self._lanes.move_to_end(first)
        return self._pop(first)

    def _pop(self, request: object) -> T:
        lane = self._lanes[request]
        _, _, item = heapq.heappop(lane)
        if not lane:
            del self._lanes[request]
        return item
