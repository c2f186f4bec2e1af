"""Policy ``prefix_hash``: prompts that begin alike go to one worker, found by hashing alone (spec routing 1.6).

No index and no memory: the key is the hash of the first ``prefix_token_count`` tokens, its owner the one on the ring.
An owner with more than ``prefix_hash_load_factor`` times its share is passed over for the least loaded worker.
"""

import struct

from smg._native.hashes import xxh3_64
from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.index.cost import BYTES_PER_TOKEN
from smg.routing.policies.base import Choice
from smg.routing.policies.ring import Rings
from smg.routing.router import Query


class PrefixHash:
    """The owner of the prompt's beginning, unless it is overloaded."""

    name = "prefix_hash"

    def __init__(self, settings: RoutingSettings) -> None:
        self._count = settings.prefix_token_count
        self._factor = settings.prefix_hash_load_factor
        self._rings = Rings()

    def key(self, query: Query) -> str | None:
        """Ring key of the prompt: 16 hex digits; None for an empty one. Text counts as its first bytes."""
        head = query.ids[: self._count]
        data = struct.pack(f"<{len(head)}I", *head) or query.text.encode()[: self._count * BYTES_PER_TOKEN]
        return f"{xxh3_64(data):016x}" if data else None

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        loads = candidates.loads()
        least = loads.index(min(loads))
        key = self.key(query)
        if key is None:
            return Choice(least, "no_tokens")
        limit = (sum(loads) + 1) / len(loads) * self._factor
        at = candidates.positions()
        owner = next(at[url] for url in self._rings.of(query.model, candidates.everyone).walk(key) if url in at)
        if sum(loads) == 0 or loads[owner] <= limit:
            return Choice(owner, "ring_hit")
        return Choice(least, "load_balance_walk")
