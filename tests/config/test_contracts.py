"""The settings' choices are the drivers there are (settings cannot import the table: it lies above them)."""

from typing import get_args

import pytest

from smg.config.groups.fleet import Contract, LegPolicy
from smg.config.load import SettingsError, load
from smg.engine_server.mock import CONTRACTS
from smg.engines.table import ADAPTERS
from smg.routing.policies.table import POLICIES


def test_backend_has_the_tables_names():
    assert get_args(Contract) == tuple(ADAPTERS) == tuple(CONTRACTS)
    for name in ADAPTERS:
        assert load(["--backend", name], {}).fleet.backend == name


def test_every_policy_can_be_named_and_those_of_legs_are_all_that_choose():
    for name in POLICIES:
        assert load(["--policy", name], {}).routing.policy == name
    # The first of several, and the length of a prompt, are no reasons where prompts are already computed.
    assert set(get_args(LegPolicy)) == set(POLICIES) - {"passthrough", "bucket"}
    for name in (*get_args(LegPolicy), "bucket"):
        assert load(["--prefill-policy", name], {}).disaggregation.prefill_policy == name


def test_another_name_is_refused():
    with pytest.raises(SettingsError, match="backend"):
        load(["--backend", "poem"], {})
