"""HashRing: which place a key belongs to, the same in every process and gateway (spec routing 1.5)."""

from collections.abc import Collection, Iterator

import numpy as np

from smg._native.hashes import blake3_64
from smg.routing.candidates import Candidates, Place

VIRTUAL_NODES = 150
# Share of points that may be of names that have gone.
_GONE = 0.1


class HashRing:
    """Names at 150 points each; a key's owner is the first at or after the key's own point.

    A name that comes or goes moves nobody else, and costs one pass over the points at most and not a new ring: fleets
    of thousands change while requests wait. Points of names that have gone are passed over until they are many.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._points = np.empty(0, np.uint64)
        self._owners = np.empty(0, np.int32)
        self._last = 0
        self.update(names)

    def update(self, names: Collection[str]) -> None:
        """Hold exactly ``names``."""
        wanted = set(names)
        for name in self._numbers.keys() - wanted:
            del self._names[self._numbers.pop(name)]
        if len(self._points) > (1 + _GONE) * VIRTUAL_NODES * len(self._names):
            here = np.zeros(self._last, np.bool_)
            here[list(self._names)] = True
            kept = here[self._owners]
            self._points, self._owners = self._points[kept], self._owners[kept]
        new = sorted(wanted - self._numbers.keys())
        if not new:
            return
        points, owners = [], []
        for name in new:
            self._names[self._last] = name
            self._numbers[name] = self._last
            points += [blake3_64(f"{name}#{virtual}".encode()) for virtual in range(VIRTUAL_NODES)]
            owners += [self._last] * VIRTUAL_NODES
            self._last += 1
        added = np.array(points, np.uint64)
        order = np.argsort(added, kind="stable")
        added = added[order]
        places = np.searchsorted(self._points, added)
        self._points = np.insert(self._points, places, added)
        self._owners = np.insert(self._owners, places, np.array(owners, np.int32)[order])

    def walk(self, key: str) -> Iterator[str]:
        """Names from the key's owner on, clockwise, each once."""
        count = len(self._points)
        start = int(np.searchsorted(self._points, np.uint64(blake3_64(key.encode()))))
        seen: set[int] = set()
        for step in range(count):
            owner = int(self._owners[(start + step) % count])
            if owner in self._names and owner not in seen:
                seen.add(owner)
                yield self._names[owner]


class Rings:
    """The ring of each model; it follows the model's places, whether they are up or down."""

    def __init__(self) -> None:
        self._rings: dict[str, tuple[tuple[Place, ...], HashRing]] = {}

    def of(self, model: str, candidates: Candidates) -> HashRing:
        """The ring of all of ``candidates.everyone``."""
        found = self._rings.get(model)
        if found is not None and found[0] is candidates.everyone:
            return found[1]
        ring = HashRing() if found is None else found[1]
        ring.update([place.name for place in candidates.everyone])
        self._rings[model] = candidates.everyone, ring
        return ring
