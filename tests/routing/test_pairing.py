"""Who may be a pair, who is chosen, and what is counted where (spec routing 5, 11; field case PD-01)."""

import time
from collections import Counter

import pytest

from smg._native.region import FAILURES, PROCESSED, QUEUED_TOKENS, USAGE
from smg.config.settings import RoutingSettings, Settings
from smg.core.errors import GatewayError
from smg.core.request import Hints
from smg.engines.table import ADAPTERS, adapter
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.roles import role_of
from smg.pipeline.services import leg_policies
from smg.routing.fleet_router import FleetRouter, outcome_of
from smg.routing.pairing import PartnerFailed
from smg.routing.policies.base import Parts
from smg.routing.policies.per_model import PerModel
from smg.routing.router import Lease, Query
from tests.routing.fleets import PROCESS, FakeFleet

ROLES = {"p": "prefill", "d": "decode", "e": "encode", "w": "regular"}


def fleet_of(*names: str, runtime: str = "sglang", **labels: dict[str, str]) -> FakeFleet:
    """Workers of the model "m"; the first letter is the role, ``labels`` are those of single workers."""
    fleet = FakeFleet({"m": list(names)})
    for name, worker in fleet.workers.items():
        worker.labels = {"worker_type": ROLES[name[0]], "runtime": runtime} | labels.get(name, {})
        worker.runtime = worker.labels["runtime"]
        worker.role = role_of(worker.labels)
        worker.features = adapter(worker.runtime).capabilities
    return fleet


def router_of(fleet: FakeFleet, policy: str = "round_robin", **legs: str) -> FleetRouter:
    parts = Parts(RoutingSettings(policy=policy), fleet.region)
    return FleetRouter(fleet, fleet.region, PROCESS, PerModel(parts, legs))


def refused(fleet: FakeFleet, **query) -> GatewayError:
    router = router_of(fleet)
    assert not router.available(Query("m", **query))
    with pytest.raises(GatewayError) as caught:
        router.select(Query("m", **query))
    assert fleet.idle()
    return caught.value


def pairs_chosen(fleet: FakeFleet, count: int = 40, **query) -> set[tuple[str, str]]:
    router = router_of(fleet, "random")
    found = set()
    for _ in range(count):
        lease = router.select(Query("m", **query))
        found.add((lease.prefill.worker.id, lease.worker.id))
        router.release(lease, "ok")
    return found


class TestWhoIsAPair:
    def test_one_of_each_kind(self):
        assert pairs_chosen(fleet_of("p1", "p2", "d1", "d2")) == {
            (prefill, decode) for prefill in ("p1", "p2") for decode in ("d1", "d2")
        }

    def test_both_of_one_contract_even_if_the_first_prefill_worker_has_no_partner(self):
        fleet = fleet_of("p1", "p2", "d1", p1={"runtime": "vllm"})
        assert pairs_chosen(fleet) == {("p2", "d1")}

    @pytest.mark.parametrize("fact", ["kv_cache_dtype", "block_size", "pairing_protocol", "affinity", "weight_version"])
    def test_known_facts_must_agree(self, fact):
        fleet = fleet_of("p1", "p2", "d1", "d2", p1={fact: "a"}, d1={fact: "a"}, p2={fact: "b"}, d2={fact: "b"})
        assert pairs_chosen(fleet) == {("p1", "d1"), ("p2", "d2")}

    def test_what_is_not_told_fits_everything(self):
        fleet = fleet_of("p1", "d1", "d2", p1={"kv_cache_dtype": "fp8"}, d2={"kv_cache_dtype": "bf16"})
        assert pairs_chosen(fleet) == {("p1", "d1")}

    def test_a_prefill_worker_whose_only_partner_is_down_is_not_chosen(self):
        fleet = fleet_of("p1", "p2", "d1", "d2", p1={"affinity": "a"}, d1={"affinity": "a"}, p2={"affinity": "b"},
                         d2={"affinity": "b"})  # fmt: skip
        fleet.set("d1", "not_ready")
        assert pairs_chosen(fleet) == {("p2", "d2")}

    def test_the_failed_one_of_a_pair_is_left_out(self):
        fleet = fleet_of("p1", "p2", "d1", "d2")
        assert pairs_chosen(fleet, tried=frozenset({"p1", "d2"})) == {("p2", "d1")}

    def test_what_a_request_needs_both_must_have(self):
        fleet = fleet_of("p1", "p2", "d1")
        fleet.workers["p1"].features -= {"regex"}
        assert pairs_chosen(fleet, needs=frozenset({"regex"})) == {("p2", "d1")}

    def test_a_named_worker_counts_where_it_is(self):
        fleet = fleet_of("p1", "p2", "d1", "d2")
        router = router_of(fleet, "consistent_hashing")
        for target, place in (("d2", "decode"), ("grpc://p1", "prefill")):
            seen = set()
            for _ in range(20):
                lease = router.select(Query("m", hints=Hints(target_worker=target)))
                seen.add(lease.worker.id if place == "decode" else lease.prefill.worker.id)
                router.release(lease, "ok")
            assert seen == {target.removeprefix("grpc://")}

    @pytest.mark.parametrize(("number", "pair"), [("1", ("p1", None)), ("0", (None, "d1"))])
    def test_a_number_is_one_in_the_whole_fleet(self, number, pair):
        router = router_of(fleet_of("d1", "p1", "p2", "p3"), "consistent_hashing")
        for _ in range(20):
            lease = router.select(Query("m", hints=Hints(target_worker=number)))
            assert lease.worker.id == (pair[1] or "d1")
            assert pair[0] in (None, lease.prefill.worker.id)
            router.release(lease, "ok")

    @pytest.mark.parametrize("target", ["99", "nobody"])
    def test_a_named_worker_that_there_is_not_is_refused(self, target):
        fleet = fleet_of("p1", "d1")
        with pytest.raises(GatewayError) as caught:
            router_of(fleet, "consistent_hashing").select(Query("m", hints=Hints(target_worker=target)))
        assert (caught.value.status, caught.value.param) == (400, "x-smg-target-worker")
        assert fleet.idle()


class TestNobody:
    @pytest.mark.parametrize(
        ("names", "words"),
        [
            (("p1",), "there is no decode engine for the model 'm'"),
            (("d1",), "there is no prefill engine for the model 'm'"),
        ],
    )
    def test_half_a_pair_is_503_and_says_what_is_missing(self, names, words):
        error = refused(fleet_of(*names))
        assert (error.status, error.code, error.message) == (503, "no_available_workers", words)

    @pytest.mark.parametrize("status", ["pending", "not_ready", "failed"])
    @pytest.mark.parametrize(("down", "kind"), [("p1", "prefill"), ("d1", "decode")])
    def test_PD_01_one_side_out_is_503_at_once(self, down, kind, status):
        fleet = fleet_of("p1", "d1")
        fleet.set(down, status)
        error = refused(fleet)
        assert (error.status, error.message) == (503, f"no {kind} engine is available for the model 'm'")
        assert error.headers()["retry-after"] == "1"

    def test_both_sides_out(self):
        fleet = fleet_of("p1", "d1")
        fleet.set_only()
        assert refused(fleet).message == "no prefill engine and no decode engine is available for the model 'm'"

    def test_one_that_has_been_tried_is_the_one_that_is_missing(self):
        error = refused(fleet_of("p1", "d1"), tried=frozenset({"d1"}))
        assert error.message == "no decode engine is available for the model 'm'"

    def test_two_that_would_not_fit_while_one_is_down(self):
        fleet = fleet_of("p1", "d1", p1={"affinity": "a"}, d1={"affinity": "b"})
        fleet.set("p1", "not_ready")
        assert refused(fleet).message == "no prefill engine is available for the model 'm'"

    def test_two_that_do_not_fit(self):
        assert "fit each other" in refused(fleet_of("p1", "d1", p1={"affinity": "a"}, d1={"affinity": "b"})).message

    @pytest.mark.parametrize("runtime", sorted(set(ADAPTERS) - {"vllm", "sglang", "tokenspeed"}))
    def test_contracts_without_pairs_are_400(self, runtime):
        error = refused(fleet_of("p1", "d1", runtime=runtime))
        assert (error.status, error.code, error.param) == (400, "runtime_pd_not_supported", "model")
        assert runtime in error.message

    def test_what_no_pair_can_do_is_400_by_name(self):
        error = refused(fleet_of("p1", "d1", runtime="tokenspeed"), needs=frozenset({"generate", "lora"}))
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "lora_path")

    def test_a_need_that_only_a_worker_that_is_coming_back_has_is_503(self):
        fleet = fleet_of("p1", "d1", "w1", w1={"runtime": "vllm"})
        fleet.workers["p1"].features -= {"regex"}
        fleet.set("w1", "pending")
        assert refused(fleet, needs=frozenset({"regex"})).status == 503


class TestMixedFleets:
    def test_pairs_and_regular_workers_share_by_number_and_load(self):
        fleet = fleet_of("w1", "p1", "d1", "d2")
        router = router_of(fleet)
        kinds = Counter()
        for _ in range(400):
            lease = router.select(Query("m"))
            kinds["pair" if lease.prefill else "alone"] += 1
            router.release(lease, "ok")
        assert 250 < kinds["pair"] < 350

    def test_the_busier_kind_gets_less(self):
        fleet = fleet_of("w1", "w2", "p1", "d1")
        router = router_of(fleet)
        fleet.region.inflight_add(PROCESS, fleet.workers["d1"].slot, 200, 0)
        kinds = Counter()
        for _ in range(200):
            lease = router.select(Query("m"))
            kinds["pair" if lease.prefill else "alone"] += 1
            router.release(lease, "ok")
        assert kinds["pair"] < 20

    def test_the_other_kind_answers_while_one_is_out(self):
        fleet = fleet_of("w1", "p1", "d1")
        fleet.set("d1", "not_ready")
        assert router_of(fleet).select(Query("m")).worker.id == "w1"
        fleet.set_only("p1", "d1")
        assert router_of(fleet).select(Query("m")).worker.id == "d1"

    def test_encode_workers_never_generate(self):
        fleet = fleet_of("e1", "w1")
        assert {router_of(fleet, "random").select(Query("m")).worker.id for _ in range(20)} == {"w1"}


class TestEncodeWorkers:
    """Media of a pair's request go through encode workers, where the contract has any (engine-contract 5.4)."""

    DIGESTS = tuple(f"{number:064x}" for number in range(12))

    def test_every_item_has_one_by_its_content(self):
        fleet = fleet_of("p1", "d1", "e1", "e2", "e3", runtime="tokenspeed")
        router = router_of(fleet, encode="consistent_hashing")
        chosen = []
        for _ in range(2):
            lease = router.select(Query("m", media=self.DIGESTS))
            chosen.append([each.worker.id for each in lease.encode])
            assert sum(count for name, (count, _) in fleet.inflight().items() if name[0] == "e") == 12
            router.release(lease, "ok")
            assert fleet.idle()
        assert chosen[0] == chosen[1]
        assert set(chosen[0]) == {"e1", "e2", "e3"}

    def test_none_for_a_prompt_without_media_or_a_worker_that_does_it_all(self):
        fleet = fleet_of("p1", "d1", "e1", runtime="tokenspeed")
        assert router_of(fleet).select(Query("m")).encode == []
        fleet = fleet_of("w1", "e1", runtime="tokenspeed")
        assert router_of(fleet).select(Query("m", media=self.DIGESTS)).encode == []

    def test_a_contract_that_has_none_is_not_kept_waiting(self):
        fleet = fleet_of("p1", "d1", "e1", runtime="sglang")
        assert router_of(fleet).select(Query("m", media=self.DIGESTS)).encode == []

    def test_without_one_that_is_ready_a_pair_takes_no_media(self):
        fleet = fleet_of("p1", "d1", "e1", "w1", runtime="tokenspeed")
        fleet.set("e1", "not_ready")
        assert {router_of(fleet).select(Query("m", media=self.DIGESTS)).worker.id for _ in range(20)} == {"w1"}
        fleet.set_only("p1", "d1")
        fleet.set("e1", "failed")
        assert router_of(fleet).select(Query("m")).worker.id == "d1"

    def test_the_refusal_says_what_is_missing(self):
        fleet = fleet_of("p1", "d1", "e1", runtime="tokenspeed")
        fleet.set("e1", "failed")
        error = refused(fleet, media=self.DIGESTS)
        assert (error.status, error.code) == (503, "no_available_workers")
        assert "no encode engine" in error.message

    def test_one_that_failed_is_left_out(self):
        fleet = fleet_of("p1", "d1", "e1", "e2", runtime="tokenspeed")
        lease = router_of(fleet).select(Query("m", media=self.DIGESTS, tried=frozenset({"e1"})))
        assert {each.worker.id for each in lease.encode} == {"e2"}

    def test_what_cannot_be_had_whole_is_given_back(self):
        fleet = fleet_of("p1", "d1", "e1", runtime="tokenspeed")
        router = router_of(fleet)
        enter = router.breakers.enter
        router.breakers.enter = lambda worker: None if worker.role == "encode" else enter(worker)
        with pytest.raises(GatewayError) as caught:
            router.select(Query("m", media=self.DIGESTS))
        assert caught.value.status == 503
        assert fleet.idle()

    def test_all_items_of_a_request_are_one_trial_of_a_worker_that_is_out(self):
        fleet = fleet_of("p1", "d1", "e1", runtime="tokenspeed")
        router = router_of(fleet)
        entered = []
        router.breakers.enter = lambda worker: entered.append(worker.id) or 0
        router.select(Query("m", media=self.DIGESTS))
        assert entered == ["p1", "d1", "e1"]


class TestCounts:
    def test_both_are_counted_and_tokens_wait_only_where_they_are_computed(self):
        fleet = fleet_of("p1", "d1")
        router = router_of(fleet)
        lease = router.select(Query("m", tokens=50))
        assert fleet.inflight() == {"p1": (1, 50), "d1": (1, 0)}
        router.release(lease, "ok")
        assert fleet.idle()

    def test_commit_and_release_of_the_pair_cover_the_prefill_worker(self):
        fleet = fleet_of("p1", "d1")
        router = router_of(fleet)
        lease = router.select(Query("m", tokens=50))
        router.commit(lease)
        assert fleet.inflight() == {"p1": (1, 0), "d1": (1, 0)}
        router.release(lease, "ok")
        assert [fleet.region.worker_get(fleet.workers[name].slot, PROCESSED) for name in ("p1", "d1")] == [1, 1]

    def test_a_prefill_worker_given_back_early_counts_once(self):
        fleet = fleet_of("p1", "d1")
        router = router_of(fleet)
        lease = router.select(Query("m", tokens=50))
        router.commit(lease.prefill)
        router.release(lease.prefill, "ok")
        assert fleet.inflight() == {"p1": (0, 0), "d1": (1, 0)}
        router.commit(lease)
        router.release(lease, "ok")
        assert fleet.idle()

    def test_cb_PD_blames_both_a_failing_decode_worker_is_no_failure_of_its_partner(self):
        fleet = fleet_of("p1", "d1")
        router = router_of(fleet)
        router.release(router.select(Query("m")), "worker_failed")
        assert [fleet.region.worker_get(fleet.workers[name].slot, FAILURES) for name in ("p1", "d1")] == [0, 1]
        assert fleet.region.worker_get(fleet.workers["p1"].slot, PROCESSED) == 0
        assert fleet.idle()

    def test_cb_PD_blames_both_nor_the_other_way_round(self):
        cause = GatewayError("worker_failed", "gone", worker_fault=True, status=503)
        error = PartnerFailed(cause, "p1")
        assert outcome_of(error) == "cancelled"
        assert outcome_of(error.cause) == "worker_failed"
        assert (error.status, error.code, error.message, error.retryable) == (503, "worker_failed", "gone", True)

    def test_a_decode_worker_that_cannot_be_chosen_gives_the_prefill_worker_back(self):
        fleet = fleet_of("p1", "d1", "d2")
        router = router_of(fleet, "round_robin", decode="consistent_hashing")
        fleet.set("d2", "not_ready")
        with pytest.raises(GatewayError):
            router.select(Query("m", hints=Hints(target_worker="d2")))
        assert fleet.idle()


class TestPoliciesOfTheLegs:
    def test_each_leg_has_its_own(self):
        fleet = fleet_of("p1", "p2", "d1", "d2")
        lease = router_of(fleet, prefill="random", decode="least_load").select(Query("m"))
        assert (lease.prefill.policy, lease.policy) == ("random", "least_load")

    def test_pd_event_mode_the_prefill_leg_goes_where_the_prefix_is(self):
        fleet = fleet_of("p1", "p2", "p3", "d1", "d2")
        router = router_of(fleet, prefill="cache_aware", decode="round_robin")
        ids = list(range(160))
        first = router.select(Query("m", ids, tokens=160))
        router.commit(first)
        router.release(first, "ok")
        for _ in range(6):
            lease = router.select(Query("m", ids, tokens=160))
            assert lease.prefill.worker.id == first.prefill.worker.id
            assert lease.prefill.matched == 160
            router.release(lease, "ok")

    def test_pd_event_mode_the_decode_leg_goes_where_the_engine_reports_room(self):
        fleet = fleet_of("p1", "d1", "d2", "d3")
        for name, usage in (("d1", 950_000), ("d2", 100_000), ("d3", 900_000)):
            fleet.region.worker_set(fleet.workers[name].slot, USAGE, usage)
        router = router_of(fleet, decode="least_load")
        for _ in range(5):
            lease = router.select(Query("m"))
            assert lease.worker.id == "d2"
            router.release(lease, "ok")

    def test_pd_event_mode_the_prefill_leg_sees_the_engines_queues(self):
        fleet = fleet_of("p1", "p2", "d1")
        fleet.region.worker_set(fleet.workers["p1"].slot, QUEUED_TOKENS, 90_000)
        lease = router_of(fleet, prefill="least_load").select(Query("m", tokens=10))
        assert lease.prefill.worker.id == "p2"

    @pytest.mark.parametrize(
        ("policy", "decode"), [("cache_aware", "least_load"), ("prefix_hash", "least_load"), ("random", "random")]
    )
    def test_by_default_prefixes_decide_on_the_prefill_leg_only(self, policy, decode):
        names = leg_policies(Settings(routing=RoutingSettings(policy=policy)))
        assert names == {"prefill": policy, "decode": decode, "encode": "consistent_hashing"}


def test_a_policy_that_a_model_asks_for_leaves_the_legs_theirs():
    fleet = fleet_of("p1", "d1", p1={"policy": "random"}, d1={"policy": "random"})
    lease = router_of(fleet, "cache_aware", decode="least_load").select(Query("m"))
    assert (lease.prefill.policy, lease.policy) == ("cache_aware", "least_load")
    fleet = fleet_of("w1", w1={"policy": "random"})
    assert router_of(fleet, "cache_aware").select(Query("m")).policy == "random"


class TestPatience:
    """A client waits only for a pair that circuit breakers alone hold back."""

    @staticmethod
    def opened(fleet: FakeFleet, *names: str) -> FleetRouter:
        settings = RoutingSettings(cb_failure_threshold=1, cb_timeout_duration_secs=5)
        breakers = CircuitBreakers(fleet.region, settings)
        for name in names:
            breakers.leave(fleet.workers[name], 0, "worker_failed")
        return FleetRouter(fleet, fleet.region, PROCESS, PerModel(Parts(settings, fleet.region)), breakers)

    @pytest.mark.parametrize("held", [("p1",), ("d1",), ("p1", "d1")])
    def test_for_the_later_one_of_a_pair(self, held):
        assert 4 < self.opened(fleet_of("p1", "d1"), *held).patience(Query("m")) <= 5

    def test_not_for_a_pair_of_which_one_is_gone(self):
        fleet = fleet_of("p1", "d1")
        fleet.set("p1", "not_ready")
        assert self.opened(fleet).patience(Query("m")) is None

    def test_not_for_two_that_do_not_fit(self):
        fleet = fleet_of("p1", "d1", p1={"kv_cache_dtype": "fp8"}, d1={"kv_cache_dtype": "bf16"})
        assert self.opened(fleet).patience(Query("m")) is None
        assert self.opened(fleet, "p1").patience(Query("m")) is None

    def test_not_for_two_that_lack_what_is_needed(self):
        assert self.opened(fleet_of("p1", "d1")).patience(Query("m", needs=frozenset({"levitation"}))) is None

    def test_the_sooner_of_a_pair_and_a_regular_one_counts(self):
        assert self.opened(fleet_of("p1", "d1", "w1"), "p1").patience(Query("m")) == 0.0
        assert self.opened(fleet_of("p1", "d1", "w1"), "w1").patience(Query("m")) == 0.0


class TestPD01:
    """A prefill engine comes back from half open, and only its own failures are its."""

    @pytest.fixture
    def at(self):
        """A router whose breakers open at one failure for 50 ms, and close at one success; p1's is open."""
        settings = RoutingSettings(cb_failure_threshold=1, cb_success_threshold=1, cb_timeout_duration_secs=0.05)
        fleet = fleet_of("p1", "d1")
        breakers = CircuitBreakers(fleet.region, settings)
        breakers.leave(fleet.workers["p1"], 0, "worker_failed")
        router = FleetRouter(fleet, fleet.region, PROCESS, PerModel(Parts(settings, fleet.region)), breakers)
        return fleet, router, lambda: (breakers.state(fleet.workers["p1"]), breakers.state(fleet.workers["d1"]))

    @staticmethod
    def probe(router: FleetRouter) -> Lease:
        """The first pair that is let through."""
        while True:
            try:
                return router.select(Query("m"))
            except GatewayError as error:
                assert error.status == 503
                time.sleep(0.01)

    def test_PD_01_while_it_is_open_nobody_is_asked(self, at):
        fleet, router, _ = at
        with pytest.raises(GatewayError) as caught:
            router.select(Query("m"))
        assert caught.value.code == "no_available_workers"
        assert fleet.idle()

    def test_PD_01_one_pair_tries_it_and_its_success_closes_the_breaker(self, at):
        fleet, router, states = at
        lease = self.probe(router)
        assert states() == ("half_open", "closed")
        with pytest.raises(GatewayError) as caught:
            router.select(Query("m"))
        assert caught.value.status == 503
        assert {name: count for name, (count, _) in fleet.inflight().items()} == {"p1": 1, "d1": 1}
        router.commit(lease)
        router.release(lease, "ok")
        assert states() == ("closed", "closed")
        assert fleet.idle()

    @pytest.mark.parametrize(("outcome", "d1"), [("worker_failed", "open"), ("cancelled", "closed")])
    def test_PD_01_what_its_partner_or_the_client_does_is_not_booked_on_it(self, at, outcome, d1):
        fleet, router, states = at
        router.release(self.probe(router), outcome)
        assert states() == ("half_open", d1)
        assert fleet.idle()
        if outcome == "cancelled":
            router.release(self.probe(router), "ok")
            assert states() == ("closed", "closed")

    def test_PD_01_its_own_failure_opens_it_again(self, at):
        fleet, router, states = at
        lease = self.probe(router)
        router.release(lease.prefill, "worker_failed")
        router.release(lease, "cancelled")
        assert states() == ("open", "closed")
        assert fleet.idle()
