"""PerModel: each model's own policy, changed while requests run (spec routing 7).

A model's policy is what control was told for it, else the label ``policy`` of the first of its workers that has one,
else ``--policy``. Every model and leg has an object of its own, made with the gateway's parameters: nothing is shared
between models, and a name alone never means other parameters (defects ``rr_per_model``, ``policy_hint_params``).
"""

import logging
from collections.abc import Mapping

from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice, Parts, Policy
from smg.routing.policies.minimum_tokens import MinimumTokens
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query

log = logging.getLogger("smg.routing")

# Sticky by themselves: a routing key means something to them already.
_KEYED = frozenset({"manual", "consistent_hashing"})
# They look at ranks no closer than at workers.
_BLIND = frozenset({"random", "round_robin", "passthrough", "power_of_two", "bucket"})


class PerModel:
    """A ``Policy`` that asks the one of the query's model and leg. ``legs`` are other defaults for some legs."""

    def __init__(self, parts: Parts, legs: Mapping[str, str] | None = None) -> None:
        self.name = parts.settings.policy
        self._parts = parts
        self._legs = dict(legs or {})
        self._policies: dict[tuple[str, str, str], Policy] = {}
        self._refused: set[tuple[str, str]] = set()

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        policy = self.of(query, candidates.policy)
        return policy.choose(query, candidates)._replace(policy=policy.name)

    def of(self, query: Query, hint: str = "") -> Policy:
        """The policy of ``query``; ``hint`` is the name its model asks for, empty for none."""
        name = self._known(query.model, hint) or self._legs.get(query.leg, self.name)
        if self._parts.settings.routing_key_override and query.hints.routing_key and name not in _KEYED:
            name = "manual"
        found = self._policies.get((query.model, query.leg, name))
        if found is None:
            found = self._policies[query.model, query.leg, name] = self._make(name)
        return found

    def _known(self, model: str, hint: str) -> str:
        name = hint.strip().lower().replace("-", "_")
        if not name or name in POLICIES:
            return name
        if (model, hint) not in self._refused:
            self._refused.add((model, hint))
            log.warning("unknown routing policy, the default is used", extra={"model": model, "policy": hint[:64]})
        return ""

    def _make(self, name: str) -> Policy:
        policy = POLICIES[name](self._parts)
        if self._parts.settings.dp_minimum_tokens_scheduler and name in _BLIND:
            return MinimumTokens(policy, self._parts.region)
        return policy
