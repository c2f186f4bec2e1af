"""What a routing policy provides."""

from collections.abc import Sequence
from typing import Protocol

from smg.fleet.records import WorkerRecord
from smg.routing.router import Query


class Sequences(Protocol):
    """The shared counters of the region that policies may draw from."""

    def sequence_next(self, sequence: int) -> int: ...


class Policy(Protocol):
    """Chooses among candidates; keeps no state of its own that other processes would have to know."""

    name: str

    def choose(self, query: Query, candidates: Sequence[WorkerRecord], loads: Sequence[int]) -> tuple[int, str]:
        """Return the index of a candidate and, in one word, why. ``candidates`` is not empty.

        ``loads[i]`` is the number of requests in flight on ``candidates[i]``, over all processes.
        """
        ...
