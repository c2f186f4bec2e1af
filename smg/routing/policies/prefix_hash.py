"""Policy ``prefix_hash``: prompts that begin alike go to one worker, found by hashing alone (spec routing 1.6).

No index and no memory: the key is the hash of the first ``prefix_token_count`` tokens, its owner the one on the ring.
An owner with more than ``prefix_hash_load_factor`` times its share is passed over for the least loaded worker. Counts
scatter by their square root, so an owner is only overloaded when it is also that far above its share: small counts
would otherwise drive many requests away without any imbalance (field case RO-04).
"""

import math
import struct

from smg._native.hashes import xxh3_64
from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.index.cost import BYTES_PER_TOKEN
from smg.routing.policies.base import Choice, Sequences
from smg.routing.policies.ring import Rings
from smg.routing.policies.rotation import Rotation
from smg.routing.router import Query

# Standard deviations: one in a thousand is further from the mean by chance.
_SCATTER = 3.0


class PrefixHash:
    """The owner of the prompt's beginning, unless it is overloaded."""

    name = "prefix_hash"

    def __init__(self, settings: RoutingSettings, sequences: Sequences) -> None:
        self._count = settings.prefix_token_count
        self._factor = settings.prefix_hash_load_factor
        self._rings = Rings()
        self._rotation = Rotation(sequences)

    def key(self, query: Query) -> str | None:
        """Ring key of the prompt: 16 hex digits; None for an empty one. Text counts as its first bytes."""
        head = query.ids[: self._count]
        data = struct.pack(f"<{len(head)}I", *head) or query.text.encode()[: self._count * BYTES_PER_TOKEN]
        return f"{xxh3_64(data):016x}" if data else None

    def limit(self, total: int, count: int) -> float:
        """How many requests an owner may have when ``count`` workers have ``total`` together."""
        share = (total + 1) / count
        return max(share * self._factor, share + _SCATTER * math.sqrt(share))

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        placement = candidates.placement
        key = self.key(query)
        if key is None:
            return Choice(placement.idlest(self._rotation.next(query)), "no_tokens")
        walk = self._rings.of(query.model, candidates).walk(key)
        owner = next(position for name in walk if (position := candidates.position(name)) >= 0)
        if placement.load(owner) <= self.limit(placement.total(), len(candidates)):
            return Choice(owner, "ring_hit")
        return Choice(placement.idlest(self._rotation.next(query)), "load_balance_walk")
