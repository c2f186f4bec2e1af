"""The data-parallel rank with the fewest tokens, for policies that only choose a worker (spec routing 1.9).

On by ``--dp-minimum-tokens-scheduler``. Policies that know more of a rank than its load (what it holds, which session
it has) choose ranks by themselves.
"""

from smg._native.region import QUEUED_TOKENS, Region
from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice, Policy
from smg.routing.router import Query


class MinimumTokens:
    """Lets ``policy`` choose a worker, and takes the rank of it with the least to do."""

    def __init__(self, policy: Policy, region: Region) -> None:
        self.name = policy.name
        self._policy = policy
        self._region = region

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        choice = self._policy.choose(query, candidates)
        if candidates[choice.position].rank is None:
            return choice
        tokens = candidates.placement.tokens()

        def work(position: int) -> tuple[int, int]:
            place = candidates[position]
            return tokens[position] + self._region.worker_get(place.slot, QUEUED_TOKENS), place.rank or 0

        return choice._replace(position=min(candidates.siblings(choice.position), key=work))
