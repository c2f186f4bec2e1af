"""Policy ``random``: uniform over the candidates (spec routing 1.1)."""

import random
from collections.abc import Sequence

from smg.fleet.records import WorkerRecord
from smg.routing.policies.base import Sequences
from smg.routing.router import Query


class Random:
    """Uniform choice."""

    name = "random"

    def __init__(self, sequences: Sequences) -> None:
        self._draw = random.Random()

    def choose(self, query: Query, candidates: Sequence[WorkerRecord], loads: Sequence[int]) -> tuple[int, str]:
        return self._draw.randrange(len(candidates)), self.name
