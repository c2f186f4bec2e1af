"""What routing does with circuit breakers (spec routing 4.4; field cases RL-01, RL-02)."""

import asyncio

import pytest

from smg.config.settings import RoutingSettings
from smg.core.errors import GatewayError
from smg.engines.transport.errors import from_status
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.resilience import ResilienceSpec
from smg.routing.fleet_router import FleetRouter, outcome_of
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from smg.telemetry.cells import LocalCells
from smg.telemetry.families import split_key
from smg.telemetry.metrics import Metrics
from tests.routing.fleets import PROCESS, FakeFleet

SETTINGS = RoutingSettings(cb_failure_threshold=3, cb_success_threshold=2, cb_timeout_duration_secs=0.1)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"m": ["w1", "w2"]})


@pytest.fixture
def cells() -> LocalCells:
    return LocalCells()


def router_of(fleet: FakeFleet, settings=SETTINGS, process=PROCESS, cells=None, policy="round_robin") -> FleetRouter:
    metrics = None if cells is None else Metrics(cells, process)
    breakers = CircuitBreakers(fleet.region, settings, metrics)
    return FleetRouter(fleet, fleet.region, process, POLICIES[policy](Parts(settings, fleet.region)), breakers=breakers)


def serve(router: FleetRouter, outcome: str, only: str = "w1") -> None:
    """One request on worker ``only`` and what came of it."""
    tried = frozenset({"w1", "w2"} - {only})
    router.release(router.select(Query("m", tried=tried)), outcome)


def values(cells: LocalCells, name: str) -> dict[tuple[str, ...], int]:
    split = ((split_key(key), value) for key, _, value in cells.read_series())
    return {labels: value for (sample, labels), value in split if sample == name}


def test_a_worker_that_keeps_failing_is_passed_over(fleet):
    router = router_of(fleet)
    for _ in range(3):
        serve(router, "worker_failed")
    assert {router.select(Query("m")).worker.id for _ in range(6)} == {"w2"}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_by_every_policy(fleet, policy):
    router = router_of(fleet, policy=policy)
    for _ in range(3):
        serve(router, "worker_failed")
    assert {router.select(Query("m", range(40))).worker.id for _ in range(6)} == {"w2"}


def test_a_worker_s_own_numbers(fleet):
    """Of three workers that fail alike: one opens earlier, one never, and one as the settings say."""
    fleet = FakeFleet({"m": ["w1", "w2", "w3"]})
    fleet.workers["w1"].resilience = ResilienceSpec(cb_failure_threshold=1, cb_timeout_secs=60)
    fleet.workers["w2"].resilience = ResilienceSpec(disable_circuit_breaker=True)
    router, breakers = router_of(fleet), []
    for _ in range(3):
        for worker in fleet.workers:
            query = Query("m", tried=frozenset(fleet.workers) - {worker})
            if router.available(query):
                router.release(router.select(query), "worker_failed")
        breakers.append([router.breakers.state(worker) for worker in fleet.workers.values()])
    assert breakers == [["open", "closed", "closed"], ["open", "closed", "closed"], ["open", "closed", "open"]]
    assert router.breakers.wait(fleet.workers["w1"]) > 30
    assert router.breakers.wait(fleet.workers["w3"]) <= 0.1


def test_a_worker_may_have_a_breaker_where_others_have_none(fleet):
    router = router_of(fleet, RoutingSettings(disable_circuit_breaker=True))
    fleet.workers["w1"].resilience = ResilienceSpec(disable_circuit_breaker=False, cb_failure_threshold=1)
    for worker in ("w1", "w2"):
        serve(router, "worker_failed", worker)
    assert [router.breakers.state(worker) for worker in fleet.workers.values()] == ["open", "closed"]


@pytest.mark.parametrize(
    ("rpc", "status", "outcome"),
    [
        ("INVALID_ARGUMENT", 400, "client_error"),
        ("RESOURCE_EXHAUSTED", 429, "busy"),
        ("UNAVAILABLE", 503, "worker_failed"),
        ("INTERNAL", 500, "worker_failed"),
        ("DEADLINE_EXCEEDED", 504, "worker_failed"),
    ],
)
def test_RL_01_what_each_answer_of_a_worker_means(fleet, rpc, status, outcome):
    error = from_status(rpc, "scripted")
    assert (error.status, outcome_of(error)) == (status, outcome)
    router = router_of(fleet)
    for _ in range(10):
        if router.available(Query("m", tried=frozenset({"w2"}))):
            serve(router, outcome_of(error))
    opened = router.breakers.state(fleet.workers["w1"]) == "open"
    assert opened == (outcome == "worker_failed")


def test_RL_01_after_ten_bad_requests_the_next_good_one_succeeds_on_the_same_worker(fleet):
    router = router_of(fleet)
    for _ in range(10):
        serve(router, "client_error")
    serve(router, "ok")


def test_RL_02_busy_is_not_dead(fleet, cells):
    router = router_of(fleet, cells=cells)
    for _ in range(50):
        serve(router, "busy")
    serve(router, "ok")
    assert router.breakers.state(fleet.workers["w1"]) == "closed"
    assert values(cells, "smg_worker_cb_outcomes_total") == {("w1", "backpressure"): 50, ("w1", "success"): 1}


def test_cb_stream_a_stream_that_began_well_counts_by_how_it_ended(fleet):
    router = router_of(fleet)
    for _ in range(3):
        lease = router.select(Query("m", tried=frozenset({"w2"})))
        router.commit(lease)
        router.release(lease, "worker_failed")
    assert router.breakers.state(fleet.workers["w1"]) == "open"


def test_clients_that_leave_say_nothing_about_a_worker(fleet):
    router = router_of(fleet)
    for _ in range(10):
        serve(router, "cancelled")
    assert router.breakers.state(fleet.workers["w1"]) == "closed"


async def test_cb_half_open_few_try_and_their_successes_close_it(fleet, cells):
    router = router_of(fleet, cells=cells)
    for _ in range(3):
        serve(router, "worker_failed")
    await asyncio.sleep(0.12)
    only = Query("m", tried=frozenset({"w2"}))
    leases = [router.select(only), router.select(only)]
    with pytest.raises(GatewayError) as caught:
        router.select(only)
    assert caught.value.code == "no_available_workers"
    for lease in leases:
        router.release(lease, "ok")
    assert router.breakers.state(fleet.workers["w1"]) == "closed"
    assert values(cells, "smg_worker_cb_transitions_total") == {
        ("w1", "closed", "open"): 1,
        ("w1", "open", "half_open"): 1,
        ("w1", "half_open", "closed"): 1,
    }


def test_a_permit_that_another_process_took_first_costs_nothing(fleet, monkeypatch):
    router = router_of(fleet)
    permits, asked = iter([None, 0]), []

    def enter(worker):
        asked.append(worker.id)
        return next(permits)

    monkeypatch.setattr(router.breakers, "enter", enter)
    chosen = router.select(Query("m")).worker.id
    assert (sorted(asked), asked[-1]) == (["w1", "w2"], chosen)
    assert sum(requests for requests, _ in fleet.inflight().values()) == 1


class TestAllOpen:
    def test_grpc_503_with_the_time_to_come_again(self, fleet):
        router = router_of(fleet)
        for worker in ("w1", "w2"):
            for _ in range(3):
                serve(router, "worker_failed", worker)
        with pytest.raises(GatewayError) as caught:
            router.select(Query("m"))
        assert (caught.value.code, caught.value.status) == ("no_available_workers", 503)
        assert 0 < caught.value.retry_after <= 0.1
        assert 0 < router.patience(Query("m")) <= 0.1

    def test_patience_is_for_workers_that_are_well_and_able(self, fleet):
        router = router_of(fleet)
        fleet.set_only()
        assert router.patience(Query("m")) is None
        fleet.set("w1", "ready")
        assert router.patience(Query("m")) == 0.0
        fleet = FakeFleet({"m": ["w1"]})
        fleet.workers["w1"].features = frozenset({"generate"})
        assert router_of(fleet).patience(Query("m", needs=frozenset({"lora"}))) is None


def test_it_can_be_switched_off(fleet):
    router = router_of(fleet, RoutingSettings(cb_failure_threshold=1, disable_circuit_breaker=True))
    for _ in range(20):
        serve(router, "worker_failed")
    serve(router, "ok")
