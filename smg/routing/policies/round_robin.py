"""Policy ``round_robin``: one counter per model and leg, shared by all processes (spec routing 1.1)."""

from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice, Sequences
from smg.routing.policies.rotation import Rotation
from smg.routing.router import Query


class RoundRobin:
    """Candidates in turn."""

    name = "round_robin"

    def __init__(self, sequences: Sequences) -> None:
        self._rotation = Rotation(sequences)

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        return Choice(self._rotation.next(query) % len(candidates), self.name)
