"""Policy ``round_robin``: one counter per model and leg, shared by all processes (spec routing 1.1)."""

import zlib
from collections.abc import Sequence

from smg.fleet.records import WorkerRecord
from smg.routing.policies.base import Sequences
from smg.routing.router import Query

SEQUENCES = 256


class RoundRobin:
    """Candidates in turn. Two models may share a counter (256 exist), which only skips a turn."""

    name = "round_robin"

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def choose(self, query: Query, candidates: Sequence[WorkerRecord], loads: Sequence[int]) -> tuple[int, str]:
        # crc32 because all processes must agree on the counter, and hash() is salted per process.
        counter = zlib.crc32(f"{query.model}\0{query.leg}".encode()) % SEQUENCES
        return self._sequences.sequence_next(counter) % len(candidates), self.name
