"""Tiers of a model's workers by priority and cost (spec routing 4.1).

The workers of the highest priority serve, among them those that cost least. The next tier's turn is when none of a tier
can take the request, or all of them are full. Without priorities and costs there is one tier and nothing to decide.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from smg.fleet.records import WorkerRecord

# Label that tells how many requests a worker runs at a time (spec routing 4.1).
_CAPACITY = "max_running_requests"


class Placed(Protocol):
    """A worker, or a rank of it."""

    @property
    def id(self) -> str: ...


class Tiers:
    """The tiers of ``workers``, best first: ``others[n]`` are the ids of all workers that are not of tier ``n``."""

    def __init__(self, workers: Sequence[WorkerRecord]) -> None:
        ranks = sorted({(-worker.priority, worker.cost) for worker in workers})
        self.others: list[tuple[str, ...]] = [()] * len(ranks)
        if len(ranks) > 1:
            self.others = [tuple(w.id for w in workers if (-w.priority, w.cost) != rank) for rank in ranks]
        self._workers = workers

    @cached_property
    def _capacity(self) -> dict[str, int]:
        # Of thousands of workers it takes a while, and most fleets have one tier and never ask.
        return {worker.id: capacity(worker) for worker in self._workers}

    def full(self, places: Sequence[Placed], loads: Sequence[int]) -> bool:
        """Whether all of ``places``, with so many requests in flight each, run as many as they can."""
        return all(0 < self._capacity[place.id] <= load for place, load in zip(places, loads, strict=True))


def capacity(worker: WorkerRecord) -> int:
    """Requests the worker runs at a time by its labels, 0 when they don't tell."""
    text = worker.labels.get(_CAPACITY, "")
    return int(text) if text.isascii() and text.isdigit() else 0
