"""Requests go where they can be answered as asked (spec engine-contract 2.3, 9)."""

import pytest

from smg.config.settings import RoutingSettings
from smg.core.errors import GatewayError
from smg.core.request import Constraint, GenerationRequest, Hints, Limits, Logprobs, Sampling
from smg.engines.capabilities import FEATURES
from smg.engines.table import ADAPTERS
from smg.routing import needs
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import PROCESS, FakeFleet


def request(**fields):
    return GenerationRequest(dialect="openai_chat", model="m", **fields)


def required(**fields):
    """Needs of a request whose own constraint is what binds its output."""
    return needs.required(request(**fields), fields.get("constraint"))


class TestWhatARequestNeeds:
    def test_text_is_all_a_plain_request_needs(self):
        assert required() == {"generate"}
        assert needs.wished(request()) == frozenset()

    @pytest.mark.parametrize(
        ("fields", "feature"),
        [
            ({"n": 2}, "n"),
            ({"sampling": Sampling(logit_bias={1: 1.0})}, "logit_bias"),
            ({"limits": Limits(min_tokens=1)}, "min_tokens"),
            ({"logprobs": Logprobs()}, "logprobs"),
            ({"constraint": Constraint("regex", "a")}, "regex"),
            ({"constraint": Constraint("json_object")}, "json_object"),
            ({"lora": "sql"}, "lora"),
        ],
        ids=str,
    )
    def test_what_changes_the_answer_is_a_need(self, fields, feature):
        assert required(**fields) == {"generate", feature}
        assert feature in FEATURES

    def test_prompt_logprobs_come_on_top(self):
        assert required(logprobs=Logprobs(prompt=True)) == {"generate", "logprobs", "prompt_logprobs"}

    @pytest.mark.parametrize(
        ("fields", "feature"),
        [({"sampling": Sampling(seed=0)}, "seed"), ({"hints": Hints(dp_rank=0)}, "dp_rank")],
        ids=str,
    )
    def test_what_leaves_the_answer_right_is_a_wish(self, fields, feature):
        assert required(**fields) == {"generate"}
        assert needs.wished(request(**fields)) == {feature}


@pytest.fixture
def fleet():
    """One worker of each contract for the model ``m``, named after it."""
    fleet = FakeFleet({"m": list(ADAPTERS)})
    for name, worker in fleet.workers.items():
        worker.features = ADAPTERS[name]().capabilities
    return fleet


@pytest.fixture
def router(fleet):
    return FleetRouter(fleet, fleet.region, PROCESS, POLICIES["round_robin"](Parts(RoutingSettings(), fleet.region)))


def chosen(router, **fields):
    leases = [router.select(Query("m", **fields)) for _ in range(20)]
    for lease in leases:
        router.release(lease, "ok")
    return {lease.worker.id for lease in leases}


def refused(router, **fields):
    with pytest.raises(GatewayError) as caught:
        router.select(Query("m", **fields))
    return caught.value


class TestWhereItGoes:
    def test_without_needs_anywhere(self, router):
        assert chosen(router) == set(ADAPTERS)

    def test_with_needs_where_they_are_met(self, router):
        assert chosen(router, needs=frozenset({"n"})) == set(ADAPTERS) - {"mlx"}
        assert chosen(router, needs=frozenset({"lora"})) == {"sglang", "trtllm"}
        assert chosen(router, needs=frozenset({"lora", "prompt_logprobs", "json_schema"})) == {"sglang", "trtllm"}

    def test_wishes_prefer_but_do_not_exclude(self, fleet, router):
        assert chosen(router, wishes=frozenset({"seed"})) == set(ADAPTERS) - {"sglang"}
        for name in set(ADAPTERS) - {"sglang"}:
            fleet.set(name, "not_ready")
        lease = router.select(Query("m", wishes=frozenset({"seed"})))
        assert (lease.worker.id, lease.lacks) == ("sglang", {"seed"})
        assert needs.warning(lease.lacks) == "not supported by the engine and ignored: seed"

    def test_a_worker_that_has_not_told_is_tried(self, fleet, router):
        fleet.workers["mlx"].features = None
        assert "mlx" in chosen(router, needs=frozenset({"n"}))

    def test_what_no_worker_can_do_is_refused_by_name(self, fleet, router):
        for name in set(ADAPTERS) - {"mlx"}:
            fleet.set(name, "failed")
        query = {"needs": frozenset({"generate", "json_schema"})}
        error = refused(router, **query)
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "response_format")
        assert "JSON schema" in error.message
        assert not router.available(Query("m", **query))

    def test_what_none_can_do_together_is_refused_too(self, router):
        error = refused(router, needs=frozenset({"lora", "dp_rank", "seed"}))
        assert (error.status, error.param) == (400, "seed")

    @pytest.mark.parametrize("status", ["pending", "not_ready"])
    def test_a_worker_that_may_come_back_is_worth_another_try(self, fleet, router, status):
        for name in set(ADAPTERS) - {"mlx"}:
            fleet.set(name, status)
        error = refused(router, needs=frozenset({"n"}))
        assert (error.status, error.code) == (503, "no_available_workers")

    def test_a_worker_that_was_tried_already_is_no_reason_to_refuse(self, router):
        error = refused(router, needs=frozenset({"lora"}), tried=frozenset({"sglang", "trtllm"}))
        assert (error.status, error.code) == (503, "no_available_workers")

    def test_no_worker_at_all_is_no_matter_of_features(self, fleet, router):
        for name in ADAPTERS:
            fleet.set(name, "failed")
        assert refused(router, needs=frozenset({"poem"})).status == 503


def test_a_route_that_no_engine_has_is_the_models_lack_and_no_field_of_the_request(fleet):
    with pytest.raises(GatewayError) as caught:
        needs.check(Query("m", needs=frozenset({"transcriptions_api"})), list(fleet.workers.values()))
    assert caught.value.param == "model"
    assert "transcription of audio" in caught.value.message
