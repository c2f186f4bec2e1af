"""Policy ``power_of_two``: the less loaded of two drawn at random (spec routing 1.2)."""

import random

from smg._native.region import USAGE, Region
from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice
from smg.routing.router import Query


class PowerOfTwo:
    """Compares KV usage where both engines report it, else requests in flight; the first drawn wins a tie."""

    name = "power_of_two"

    def __init__(self, region: Region) -> None:
        self._region = region
        self._draw = random.Random()

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        count = len(candidates)
        if count == 1:
            return Choice(0, "only_one")
        first = self._draw.randrange(count)
        second = (first + 1 + self._draw.randrange(count - 1)) % count
        usage = [self._region.worker_get(candidates[at].slot, USAGE) for at in (first, second)]
        if all(usage):
            return Choice(first if usage[0] <= usage[1] else second, "usage")
        load = candidates.placement.load
        return Choice(first if load(first) <= load(second) else second, "requests")
