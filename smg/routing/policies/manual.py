"""Policy ``manual``: a routing key sticks to the worker it was first given (spec routing 1.7).

Who has which key is kept in the prefix index, under the model, the leg and the key: shared by all processes, bounded,
and gone with its worker. A key whose workers are all away is assigned anew and then has both; it returns to one of them
(always the same) when they are there again. Keys that are not used give way to others, the oldest first.

A key that has been idle for ``max_idle_secs`` is new again, after twice that time for certain: keys are entered under
the number of the period they were used in, and looked for in this one and the one before.
"""

import random

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.routing.candidates import Candidates
from smg.routing.index.facade import salt_of
from smg.routing.policies.base import Choice
from smg.routing.router import Query

# One block of the text ladder.
_KEY_BYTES = 16


class Manual:
    """Sticky by routing key; ``assignment_mode`` says who gets a new one."""

    name = "manual"

    def __init__(self, settings: RoutingSettings, index: PrefixIndex) -> None:
        self._mode = settings.assignment_mode
        self._idle = settings.max_idle_secs
        self._index = index
        self._draw = random.Random()

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        if not query.hints.routing_key:
            return Choice(self._assign(candidates), "no_routing_id")
        # The same in all processes, which share the machine's clock.
        period = int(clock.monotonic() / self._idle)
        key = self._key(query, period)
        position = self._holder(key, candidates)
        if position < 0:
            position = self._holder(self._key(query, period - 1), candidates)
        vacant = position < 0
        if vacant:
            position = self._assign(candidates)
        # At once, and not when the worker has begun to answer: the next request of the session may be on its way.
        self._index.insert(key, self._index.ticket(candidates[position].slot))
        return Choice(position, "vacant" if vacant else "occupied_hit")

    def _key(self, query: Query, period: int) -> PrefixKeys:
        salt = salt_of(query.model, f"sticky:{query.leg}:{period}", query.hints.routing_key or "")
        return PrefixKeys.of_text(b"\0" * _KEY_BYTES, salt)

    def _holder(self, key: PrefixKeys, candidates: Candidates) -> int:
        candidates.placement.match(self._index, key)
        return candidates.placement.holder()

    def _assign(self, candidates: Candidates) -> int:
        if self._mode == "random":
            return self._draw.randrange(len(candidates))
        return candidates.placement.idlest(self._draw.randrange(len(candidates)))
