"""Priority, cost and workers for any model (spec routing 4.1, 4.2, 11: priority_tiers, wildcard_model)."""

import pytest

from smg.config.settings import RoutingSettings
from smg.core.errors import GatewayError
from smg.fleet.records import WILDCARD
from smg.routing.fleet_router import FleetRouter
from smg.routing.models import resolve
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import PROCESS, FakeFleet


def router_of(fleet: FakeFleet, policy: str = "round_robin") -> FleetRouter:
    return FleetRouter(fleet, fleet.region, PROCESS, POLICIES[policy](Parts(RoutingSettings(), fleet.region)))


def chosen(router: FleetRouter, count: int = 6, model: str = "m") -> set[str]:
    leases = [router.select(Query(model)) for _ in range(count)]
    for lease in leases:
        router.release(lease, "ok")
    return {lease.worker.id for lease in leases}


@pytest.fixture
def fleet() -> FakeFleet:
    """``a`` and ``b`` before ``c``, which costs less than ``d``."""
    fleet = FakeFleet({"m": ["a", "b", "c", "d"]})
    for name in ("a", "b"):
        fleet.workers[name].priority = 60
    fleet.workers["c"].cost = 0.5
    return fleet


class TestPriorityTiers:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_priority_tiers_the_highest_serves_whatever_the_policy(self, fleet, policy):
        assert chosen(router_of(fleet, policy), 12) <= {"a", "b"}

    def test_priority_tiers_the_next_one_when_it_is_away(self, fleet):
        fleet.set_only("c", "d")
        assert chosen(router_of(fleet)) == {"c"}
        fleet.set_only("d")
        assert chosen(router_of(fleet)) == {"d"}

    def test_or_has_been_tried(self, fleet):
        router = router_of(fleet)
        assert router.select(Query("m", tried=frozenset({"a", "b"}))).worker.id == "c"

    def test_or_is_full(self, fleet):
        for name in ("a", "b", "c", "d"):
            fleet.workers[name].labels = {"max_running_requests": "1"}
        router = router_of(fleet)
        order = [router.select(Query("m")).worker.id for _ in range(5)]
        assert set(order[:2]) == {"a", "b"}
        assert order[2:4] == ["c", "d"]
        assert order[4] in ("a", "b"), "when all are full the best tier queues"

    def test_a_tier_that_does_not_tell_its_capacity_is_never_full(self, fleet):
        router = router_of(fleet)
        assert {router.select(Query("m")).worker.id for _ in range(50)} == {"a", "b"}

    def test_what_a_worker_cannot_do_is_left_to_the_others(self, fleet):
        for name in ("a", "b"):
            fleet.workers[name].features = frozenset()
        assert router_of(fleet).select(Query("m", needs=frozenset({"lora"}))).worker.id == "c"


class TestWildcardModel:
    @pytest.fixture
    def fleet(self) -> FakeFleet:
        return FakeFleet({"qwen": ["q"], WILDCARD: ["any"]})

    def test_wildcard_model_a_name_nobody_has_goes_to_a_worker_for_any(self, fleet):
        assert chosen(router_of(fleet), model="whatever") == {"any"}

    def test_wildcard_model_a_name_somebody_has_does_not(self, fleet):
        assert chosen(router_of(fleet), model="qwen") == {"q"}

    def test_names_that_clients_invent_take_no_memory(self, fleet):
        router = router_of(fleet)
        for number in range(100):
            router.available(Query(f"invented-{number}"))
        assert len(router._serving._pools) == 1

    def test_RO_01_without_one_it_is_404(self):
        with pytest.raises(GatewayError) as caught:
            resolve(FakeFleet({"qwen": ["q"]}).snapshot(), "whatever")
        assert caught.value.status == 404
