import pytest
from msgspec.structs import replace

from smg._native.region import COMPUTED, FAILURES, LAST_OK, PROCESSED
from smg.config.settings import RoutingSettings
from smg.core import clock, ids
from smg.core.errors import GatewayError
from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord
from smg.routing import serving
from smg.routing.fleet_router import FleetRouter, outcome_of
from smg.routing.models import resolve
from smg.routing.pairing import Pools
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import PROCESS, FakeFleet


def router_of(fleet: FakeFleet, policy: str = "round_robin") -> FleetRouter:
    return FleetRouter(fleet, fleet.region, PROCESS, POLICIES[policy](Parts(RoutingSettings(), fleet.region)))


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"qwen": ["w1", "w2", "w3"], "llama": ["w4"]})


class TestWhichModel:
    def test_RO_01_an_unknown_model_is_404_and_names_those_there_are(self, fleet):
        with pytest.raises(GatewayError) as caught:
            resolve(fleet.snapshot(), "nope")
        assert (caught.value.code, caught.value.status, caught.value.param) == ("model_not_found", 404, "model")
        assert "qwen, llama" in caught.value.message

    def test_RO_01_no_name_is_400_when_several_models_are_served(self, fleet):
        with pytest.raises(GatewayError) as caught:
            resolve(fleet.snapshot(), "")
        assert (caught.value.code, caught.value.status) == ("missing_model", 400)

    def test_RO_01_no_name_means_the_only_model(self):
        assert resolve(FakeFleet({"qwen": ["w1"]}).snapshot(), "").id == "qwen"

    def test_no_name_and_no_model_yet_is_503(self):
        with pytest.raises(GatewayError) as caught:
            resolve(FakeFleet({}).snapshot(), "")
        assert caught.value.status == 503

    def test_a_name_may_belong_to_an_engine_that_has_not_answered_yet(self, fleet):
        fleet.snapshot().workers.append(WorkerRecord("w9", 9, "grpc://w9"))
        with pytest.raises(GatewayError) as caught:
            resolve(fleet.snapshot(), "nope")
        assert (caught.value.code, caught.value.status) == ("no_available_workers", 503)
        fleet.snapshot().workers[-1].status = "failed"
        with pytest.raises(GatewayError, match="does not exist"):
            resolve(fleet.snapshot(), "nope")

    def test_a_silent_engine_is_waited_for_only_while_it_is_new(self, fleet, monkeypatch):
        silent = WorkerRecord(str(ids.uuid7()), 9, "grpc://w9")
        fleet.snapshot().workers.append(silent)
        with pytest.raises(GatewayError) as caught:
            resolve(fleet.snapshot(), "nope")
        told = "engines that have not told yet what they serve: 1"
        assert caught.value.message == f"no engine that serves 'nope' is ready yet; {told}"
        later = clock.wall() + 301
        monkeypatch.setattr(clock, "wall", lambda: later)
        with pytest.raises(GatewayError) as caught:
            resolve(fleet.snapshot(), "nope")
        assert (caught.value.code, caught.value.status) == ("model_not_found", 404)
        assert caught.value.message == f"the model 'nope' does not exist; available: qwen, llama; {told}"

    def test_an_alias_finds_its_model(self, fleet):
        fleet.snapshot().models.append(ModelRecord("big", aliases=["small"]))
        assert resolve(fleet.snapshot(), "small").id == "big"

    def test_the_message_stays_short_with_many_models(self):
        fleet = FakeFleet({f"model-{index}": ["w1"] for index in range(30)})
        with pytest.raises(GatewayError, match="and 22 more"):
            resolve(fleet.snapshot(), "nope")


class TestSelect:
    def test_only_workers_of_the_model_are_chosen(self, fleet):
        router = router_of(fleet, "random")
        assert {router.select(Query("qwen")).worker.id for _ in range(50)} == {"w1", "w2", "w3"}
        assert router.select(Query("llama")).worker.id == "w4"

    def test_round_robin_takes_turns(self, fleet):
        router = router_of(fleet)
        chosen = [router.select(Query("qwen")).worker.id for _ in range(6)]
        assert chosen[:3] == chosen[3:]
        assert set(chosen) == {"w1", "w2", "w3"}

    def test_round_robin_goes_on_where_another_process_left_off(self, fleet):
        first, second = router_of(fleet), router_of(fleet)
        chosen = [router.select(Query("qwen")).worker.id for router in (first, second, first)]
        assert set(chosen) == {"w1", "w2", "w3"}

    @pytest.mark.parametrize("status", ["pending", "not_ready", "failed", "draining"])
    def test_a_worker_that_is_not_ready_gets_nothing(self, fleet, status):
        fleet.set("w1", status)
        router = router_of(fleet)
        assert "w1" not in {router.select(Query("qwen")).worker.id for _ in range(9)}

    def test_tried_workers_are_left_out(self, fleet):
        query = Query("qwen", tried=frozenset({"w1", "w3"}))
        assert router_of(fleet).select(query).worker.id == "w2"

    def test_grpc_503_no_worker_left_is_503_with_retry_after(self, fleet):
        router = router_of(fleet)
        query = Query("llama", tried=frozenset({"w4"}))
        assert not router.available(query)
        with pytest.raises(GatewayError) as caught:
            router.select(query)
        assert (caught.value.code, caught.value.status) == ("no_available_workers", 503)
        assert caught.value.headers()["retry-after"] == "1"

    def test_a_selection_is_counted_at_once(self, fleet):
        router = router_of(fleet)
        leases = [router.select(Query("llama", tokens=10)) for _ in range(3)]
        assert fleet.inflight()["w4"] == (3, 30)
        for lease in leases:
            router.release(lease, "ok")
        assert fleet.inflight()["w4"] == (0, 0)


class TestRelease:
    def test_releasing_twice_counts_once(self, fleet):
        router = router_of(fleet)
        lease, other = router.select(Query("llama")), router.select(Query("llama"))
        router.release(lease, "ok")
        router.release(lease, "worker_failed")
        assert fleet.inflight()["w4"] == (1, 0)
        assert fleet.region.worker_get(3, FAILURES) == 0
        router.release(other, "ok")

    @pytest.mark.parametrize(
        ("outcome", "failures", "processed"),
        [("ok", 0, 1), ("client_error", 0, 0), ("busy", 0, 0), ("worker_failed", 1, 0), ("cancelled", 0, 0)],
    )
    def test_only_a_failed_worker_is_booked_as_failed(self, fleet, outcome, failures, processed):
        router = router_of(fleet)
        router.release(router.select(Query("llama")), outcome)
        assert fleet.region.worker_get(3, FAILURES) == failures
        assert fleet.region.worker_get(3, PROCESSED) == processed

    def test_commit_notes_when_the_worker_was_seen_to_work(self, fleet):
        router = router_of(fleet)
        lease = router.select(Query("llama"))
        router.commit(lease)
        assert fleet.region.worker_get(3, LAST_OK) > 0
        router.release(lease, "ok")

    def test_what_a_worker_was_given_to_compute_is_kept_if_it_began_to_answer(self, fleet):
        router = router_of(fleet)
        lease = router.select(Query("llama", tokens=10))
        router.commit(lease)
        router.release(lease, "ok")
        assert fleet.region.worker_get(3, COMPUTED) == 10
        router.release(router.select(Query("llama", tokens=10)), "worker_failed")
        assert fleet.region.worker_get(3, COMPUTED) == 10

    def test_tokens_count_until_the_worker_begins_to_answer(self, fleet):
        router = router_of(fleet)
        lease = router.select(Query("llama", tokens=10))
        router.commit(lease)
        assert fleet.inflight()["w4"] == (1, 0)
        router.release(lease, "ok")
        assert fleet.inflight()["w4"] == (0, 0)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (GatewayError("invalid_request", "too long"), "client_error"),
        (GatewayError("rate_limit_exceeded", "busy"), "busy"),
        (GatewayError("overloaded", "busy"), "busy"),
        (GatewayError("worker_failed", "gone", status=503, worker_fault=True), "worker_failed"),
        (GatewayError("worker_failed", "broken", status=500, worker_fault=True), "worker_failed"),
        (GatewayError("upstream_timeout", "slow", worker_fault=True), "worker_failed"),
        (GatewayError("not_implemented", "no"), "client_error"),
    ],
)
def test_RL_01_RL_02_a_worker_is_blamed_for_its_own_failures_only(error, outcome):
    assert outcome_of(error) == outcome


def test_what_is_known_of_a_model_is_worked_out_again_when_more_than_statuses_has_changed(fleet, monkeypatch):
    made = []

    def counted(workers, *more):
        made.append(len(workers))
        return Pools(workers, *more)

    monkeypatch.setattr(serving, "Pools", counted)
    router = router_of(fleet)
    first = FleetSnapshot(5, fleet.snapshot().workers, fleet.snapshot().models, shape=3)
    fleet._snapshot = first
    assert router.count(Query("qwen")) == 3
    # The status itself is never the snapshot's.
    fleet.set("w1", "failed")
    fleet._snapshot = replace(first, version=6, workers=[replace(worker, reason="x") for worker in first.workers])
    assert (router.count(Query("qwen")), made) == (2, [3])
    fleet._snapshot = replace(first, version=7, workers=first.workers[1:], shape=7)
    assert (router.count(Query("qwen")), made) == (2, [3, 2])
