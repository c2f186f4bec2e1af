"""PerModel: each model's own policy, changed while requests run (spec routing 7).

A model's policy is what control was told for it, else the label ``policy`` of the first of its workers that has one,
else ``--policy``. Every model and leg has an object of its own, made with the gateway's parameters and those that were
named with it: nothing is shared between models, and a name alone never means other parameters (defects
``rr_per_model``, ``policy_hint_params``).
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.policies import parameters
from smg.routing.policies.base import Choice, Parts, Policy
from smg.routing.policies.minimum_tokens import MinimumTokens
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query

log = logging.getLogger("smg.routing")

# Sticky by themselves: a routing key means something to them already.
_KEYED = frozenset({"manual", "consistent_hashing"})
# They look at ranks no closer than at workers.
_BLIND = frozenset({"random", "round_robin", "passthrough", "power_of_two", "bucket"})
# Hints that have been read; there is one of a model at a time.
_REMEMBERED = 4096


class PerModel:
    """A ``Policy`` that asks the one of the query's model and leg. ``legs`` are other defaults for some legs."""

    def __init__(self, parts: Parts, legs: Mapping[str, str] | None = None) -> None:
        self.name = parts.settings.policy
        self._parts = parts
        self._legs = dict(legs or {})
        self._read: dict[tuple[str, str], RoutingSettings | None] = {}
        # With the settings it was made by: others make another one.
        self._policies: dict[tuple[str, str, str], tuple[RoutingSettings, Policy]] = {}

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        policy = self.of(query, candidates.policy)
        return policy.choose(query, candidates).by(policy.name)

    def of(self, query: Query, hint: str = "") -> Policy:
        """The policy of ``query``; ``hint`` is what its model asks for (``parameters.read``), empty for nothing."""
        settings = self._wanted(query.model, hint)
        name = self._legs.get(query.leg, self.name) if settings is None else settings.policy
        if self._parts.settings.routing_key_override and query.hints.routing_key and name not in _KEYED:
            name = "manual"
        if settings is None:
            settings = self._parts.settings
        found = self._policies.get((query.model, query.leg, name))
        if found is None or found[0] is not settings:
            found = self._policies[query.model, query.leg, name] = settings, self._make(name, settings)
        return found[1]

    def _wanted(self, model: str, hint: str) -> RoutingSettings | None:
        """The settings ``hint`` makes of the gateway's; None when it asks for nothing, or for nothing there is."""
        if not hint.strip():
            return None
        if (model, hint) not in self._read:
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            try:
                self._read[model, hint] = parameters.read(hint, self._parts.settings)
            except ValueError as error:
                self._read[model, hint] = None
                facts = {"model": model, "policy": hint[:64], "error": str(error)}
                log.warning("no such routing policy, the default is used", extra=facts)
        return self._read[model, hint]

    def _make(self, name: str, settings: RoutingSettings) -> Policy:
        policy = POLICIES[name](replace(self._parts, settings=settings))
        if settings.dp_minimum_tokens_scheduler and name in _BLIND:
            return MinimumTokens(policy, self._parts.region)
        return policy
