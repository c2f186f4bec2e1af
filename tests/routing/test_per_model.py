"""Each model has a policy of its own, which changes while requests run (spec routing 7)."""

import pytest
from msgspec.structs import fields

from smg.config.settings import RoutingSettings
from smg.core.request import Hints
from smg.fleet.records import FleetSnapshot
from smg.routing.policies import parameters
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import FakeFleet
from tests.routing.routers import prompt, router_of, serve

MODELS = ("qwen", "llama")
WORKERS = [f"w{number}" for number in range(4)]


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"qwen": WORKERS, "llama": ["x0", "x1", "x2"]})


def again(fleet: FakeFleet) -> None:
    """Publish a new snapshot of the same workers."""
    old = fleet.snapshot()
    fleet._snapshot = FleetSnapshot(old.version + 1, old.workers, old.models)


def test_a_label_of_its_workers_names_a_models_policy(fleet):
    fleet.workers["w2"].labels["policy"] = "Round-Robin"
    router = router_of(fleet, "cache_aware")
    assert [serve(router, Query("qwen")).policy for _ in range(2)] == ["round_robin"] * 2
    assert serve(router, Query("llama")).policy == "cache_aware"
    assert router.policy == "cache_aware"


def test_what_control_was_told_wins_over_labels(fleet):
    fleet.workers["w0"].labels["policy"] = "round_robin"
    fleet.snapshot().models[0].policy = "random"
    assert serve(router_of(fleet, "cache_aware"), Query("qwen")).policy == "random"


def test_a_policy_is_swapped_with_the_next_snapshot_and_what_was_learnt_stays(fleet):
    router = router_of(fleet, "cache_aware")
    holder = serve(router, prompt(1, 2, 3, 4)).worker.id
    fleet.snapshot().models[0].policy = "round_robin"
    again(fleet)
    assert {serve(router, prompt(1, 2, 3, 4)).worker.id for _ in range(4)} == set(WORKERS)
    fleet.snapshot().models[0].policy = ""
    again(fleet)
    fleet.set_only(holder, "w3" if holder != "w3" else "w0")
    lease = serve(router, prompt(1, 2, 3, 4))
    assert (lease.policy, lease.reason, lease.matched) == ("cache_aware", "prefix", 64)


def test_policy_hint_params_are_the_gateways(fleet):
    fleet.workers["w0"].labels["policy"] = "cache_aware"
    router = router_of(fleet, "random", cache_threshold=0.9)
    serve(router, prompt(1, 2, 3, 4))
    assert serve(router, prompt(1, 2, 3, 5)).reason == "load"
    assert serve(router, prompt(1, 2, 3, 4)).reason == "prefix"


def test_an_unknown_policy_is_said_once_and_the_default_used(fleet, caplog):
    fleet.workers["w0"].labels["policy"] = "fastest"
    router = router_of(fleet, "round_robin")
    assert {serve(router, Query("qwen")).policy for _ in range(3)} == {"round_robin"}
    assert len(caplog.records) == 1


def test_legs_have_policies_of_their_own(fleet):
    router = router_of(fleet, "round_robin")
    turns = [serve(router, Query("qwen", leg=leg)).worker.id for leg in ("prefill", "decode") * 4]
    assert turns[::2] == turns[1::2] == WORKERS


class TestRoutingKeyOverride:
    keyed = Query("qwen", hints=Hints(routing_key="session-9"))

    def test_a_key_sticks_under_any_policy(self, fleet):
        router = router_of(fleet, "round_robin", routing_key_override=True)
        leases = [serve(router, self.keyed) for _ in range(6)]
        assert len({lease.worker.id for lease in leases}) == 1
        assert {lease.policy for lease in leases} == {"manual"}
        assert serve(router, Query("qwen")).policy == "round_robin"

    def test_consistent_hashing_reads_keys_itself(self, fleet):
        router = router_of(fleet, "consistent_hashing", routing_key_override=True)
        assert serve(router, self.keyed).policy == "consistent_hashing"

    def test_it_is_off_by_default(self, fleet):
        assert serve(router_of(fleet, "round_robin"), self.keyed).policy == "round_robin"


class TestParameters:
    """A model's policy may have parameters of its own."""

    def test_they_are_the_models_and_the_rest_the_gateways(self, fleet):
        fleet.workers["w0"].labels["policy"] = "Cache-Aware: cache_threshold=0.9, block_size = 16"
        router = router_of(fleet, "random", cache_threshold=0.1, cache_request_price=64)
        serve(router, prompt(1, 2, 3, 4))
        assert serve(router, prompt(1, 2, 3, 5)).reason == "load"
        assert serve(router, prompt(1, 2, 3, 4)).reason == "prefix"

    def test_they_change_with_the_next_snapshot_and_what_was_learnt_stays(self, fleet):
        fleet.snapshot().models[0].policy = "cache_aware: cache_threshold=0.9"
        router = router_of(fleet, "round_robin")
        serve(router, prompt(1, 2, 3, 4))
        assert serve(router, prompt(1, 2, 3, 5)).reason == "load"
        fleet.snapshot().models[0].policy = "cache_aware: cache_threshold=0.5"
        again(fleet)
        assert serve(router, prompt(1, 2, 3, 6)).reason == "prefix"
        assert len(router._policy._policies) == 1

    def test_two_models_do_not_share_them(self, fleet):
        for model, policy in zip(fleet.snapshot().models, ("prefix_hash: prefix_token_count=16", ""), strict=True):
            model.policy = policy
        router = router_of(fleet, "prefix_hash", prefix_token_count=4096)
        homes = [{serve(router, prompt(7, number, model=model)).worker.id for number in range(40)} for model in MODELS]
        assert [len(found) for found in homes] == [1, 3]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("fastest", "'fastest' is no policy"),
            ("cache_aware: speed=9", "no parameter of cache_aware"),
            ("cache_aware: retry_max_retries=9", "no parameter of cache_aware"),
            ("random: cache_threshold=0.5", "there are: none"),
            ("cache_aware: cache_threshold", "no parameter"),
            ("cache_aware: cache_threshold=7", "cache_threshold"),
            ("manual: assignment_mode=best", "assignment_mode"),
        ],
    )
    def test_what_does_not_fit_is_said_and_the_default_used(self, fleet, caplog, text, why):
        with pytest.raises(ValueError, match=why):
            parameters.read(text, RoutingSettings())
        fleet.workers["w0"].labels["policy"] = text
        router = router_of(fleet, "round_robin")
        assert {serve(router, Query("qwen")).policy for _ in range(3)} == {"round_robin"}
        assert len(caplog.records) == 1

    def test_every_policy_has_its_row(self):
        assert parameters.PARAMETERS.keys() == POLICIES.keys()
        assert set().union(*parameters.PARAMETERS.values()) <= {field.name for field in fields(RoutingSettings)}
