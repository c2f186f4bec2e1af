"""Policy ``consistent_hashing``: a routing key always goes to the same worker, as long as that is there (spec routing
1.5).

The load is bounded: an owner with more than 1.25 times its share of the requests in flight is passed over, so that one
key many clients share does not pin them all to one engine.
"""

import math
import random

from smg.routing import targets
from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice
from smg.routing.policies.ring import Rings
from smg.routing.router import Query

BOUND = 1.25


class ConsistentHashing:
    """Explicit target first, then the routing key on the ring, then at random."""

    name = "consistent_hashing"

    def __init__(self) -> None:
        self._rings = Rings()
        self._draw = random.Random()

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        """A target is a worker's id, its URL, ``URL@RANK``, or its number in the fleet.

        Raises:
            GatewayError: ``invalid_value`` when a target is named that there is not, ``no_available_workers`` when it
                is not ready.
        """
        if query.hints.target_worker:
            return Choice(targets.position(query.hints.target_worker, candidates), "target_worker_hit")
        if not query.hints.routing_key:
            return Choice(self._draw.randrange(len(candidates)), "random_fallback")
        placement = candidates.placement
        limit = math.ceil(BOUND * (placement.total() + 1) / len(candidates))
        for name in self._rings.of(query.model, candidates).walk(query.hints.routing_key):
            position = candidates.position(name)
            if position >= 0 and placement.load(position) < limit:
                return Choice(position, "routing_key_hit")
        # Cannot happen: not all can have more than their share.
        raise AssertionError("no worker is below the bound")
