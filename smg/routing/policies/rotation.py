"""Turns that all processes take together: what round robin is, and how other policies break ties."""

import zlib

from smg.routing.policies.base import Sequences
from smg.routing.router import Query

SEQUENCES = 256


class Rotation:
    """A counter per model and leg. Two models may share one (256 exist), which only skips a turn."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def next(self, query: Query) -> int:
        """The next number, from 0."""
        # crc32 because all processes must agree on the counter, and hash() is salted per process.
        return self._sequences.sequence_next(zlib.crc32(f"{query.model}\0{query.leg}".encode()) % SEQUENCES)
