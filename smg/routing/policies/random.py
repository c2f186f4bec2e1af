"""Policy ``random``: uniform over the candidates (spec routing 1.1)."""

import random

from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice
from smg.routing.router import Query


class Random:
    """Uniform choice."""

    name = "random"

    def __init__(self) -> None:
        self._draw = random.Random()

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        return Choice(self._draw.randrange(len(candidates)), self.name)
