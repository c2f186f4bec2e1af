"""Policy ``cache_aware``: where the prompt costs least, counting what each worker holds of it (spec routing 1.4).

What a worker holds is assumed when it is chosen and confirmed when it begins to answer; an attempt that fails teaches
nothing.
Of several workers that hold a beginning the cheapest wins, and one that is down simply is no candidate.
"""

from smg._native.prefix_index import PrefixIndex
from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.index.cost import Cost
from smg.routing.index.facade import Prefixes
from smg.routing.policies.base import Choice, Sequences
from smg.routing.policies.rotation import Rotation
from smg.routing.router import Query


class CacheAware:
    """The cheapest worker by ``Cost``."""

    name = "cache_aware"

    def __init__(self, settings: RoutingSettings, index: PrefixIndex, sequences: Sequences) -> None:
        self._prefixes = Prefixes(index, settings.block_size)
        self._cost = Cost.of(settings)
        self._rotation = Rotation(sequences)
        self._spread = settings.balance_token_usage_threshold
        self._ceiling = settings.overload_token_usage_threshold

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        keys = self._prefixes.match(query, candidates)
        if self._spread < 1 or self._ceiling < 1:
            candidates.placement.avoid_full(self._spread, self._ceiling)
        start = self._rotation.next(query)
        if keys is None:
            position, reason, _ = self._cost.cheapest(candidates.placement, query.tokens, start, text=False)
            return Choice(position, reason)
        position, reason, matched = self._cost.cheapest(candidates.placement, keys.units, start, text=not keys.block)
        return Choice(position, reason, matched, self._prefixes.lesson(keys, candidates[position]))
