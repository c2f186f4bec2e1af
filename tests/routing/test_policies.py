"""Every policy through the router: preferences, tie-breaks, and the defects of spec routing 11 it must not have."""

from collections import Counter
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.region import COMPUTED, QUEUED_TOKENS, USAGE
from smg.config.settings import RoutingSettings
from smg.core.errors import GatewayError
from smg.core.request import Hints
from smg.routing.policies.prefix_hash import PrefixHash
from smg.routing.policies.ring import HashRing
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import PROCESS, FakeFleet
from tests.routing.routers import prompt, router_of, serve

WORKERS = [f"w{number}" for number in range(8)]


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"qwen": WORKERS, "llama": WORKERS})


@pytest.mark.parametrize("policy", sorted(POLICIES))
class TestEveryPolicy:
    def test_it_chooses_a_ready_worker_whatever_the_request_carries(self, fleet, policy):
        fleet.set("w0", "not_ready")
        router = router_of(fleet, policy)
        queries = [
            Query("qwen"),
            prompt(1, 2, 3),
            Query("qwen", text="x" * 300),
            Query("qwen", hints=Hints(routing_key="user-7")),
            Query("qwen", [5]),
        ]
        for query in queries:
            for _ in range(3):
                lease = router.select(query)
                assert lease.worker.id in WORKERS[1:]
                router.commit(lease)
                router.release(lease, "ok")
        assert fleet.idle()

    def test_retry_excludes_failed(self, fleet, policy):
        router = router_of(fleet, policy)
        tried: frozenset[str] = frozenset()
        for _ in WORKERS:
            lease = router.select(Query("qwen", [1] * 64, hints=Hints(routing_key="k"), tried=tried, tokens=64))
            assert lease.worker.id not in tried
            router.release(lease, "worker_failed")
            tried |= {lease.worker.id}
        assert tried == set(WORKERS)

    def test_it_is_named_as_its_flag(self, fleet, policy):
        assert router_of(fleet, policy).policy == policy


class TestCacheAware:
    def test_a_conversation_returns_to_the_worker_that_holds_it(self, fleet):
        router = router_of(fleet, "cache_aware")
        first = serve(router, prompt(1, 2, 3, 4))
        for _ in range(10):
            serve(router, prompt(9, 9))
            again = serve(router, prompt(1, 2, 3, 4, 5))
            assert (again.worker.id, again.reason, again.matched) == (first.worker.id, "prefix", 64 if _ == 0 else 80)

    def test_what_one_process_learns_all_know(self, fleet):
        first, second = router_of(fleet, "cache_aware"), router_of(fleet, "cache_aware", process=2)
        lease = serve(first, prompt(1, 2, 3, 4))
        assert serve(second, prompt(1, 2, 3, 4)).worker.id == lease.worker.id

    def test_dark_fleet_spread_new_prompts_take_turns(self, fleet):
        router = router_of(fleet, "cache_aware")
        assert {serve(router, prompt(100 + number, 1)).worker.id for number in range(8)} == set(WORKERS)

    def test_a_failed_attempt_teaches_nothing(self, fleet):
        router = router_of(fleet, "cache_aware")
        router.release(router.select(prompt(1, 2, 3)), "worker_failed")
        assert serve(router, prompt(1, 2, 3)).reason == "load"

    def test_while_a_prompt_is_computed_others_wait_for_it_there(self, fleet):
        router = router_of(fleet, "cache_aware")
        first = router.select(prompt(*range(100)))
        second = router.select(prompt(*range(100), 999))
        assert (second.worker.id, second.matched) == (first.worker.id, 1600)

    def test_a_failed_attempt_takes_nothing_from_what_was_held_before(self, fleet):
        router = router_of(fleet, "cache_aware")
        holder = serve(router, prompt(1, 2, 3)).worker.id
        lease = router.select(prompt(1, 2, 3, 4, 5))
        assert lease.worker.id == holder
        router.release(lease, "cancelled")
        again = router.select(prompt(1, 2, 3, 4, 5))
        assert (again.worker.id, again.matched) == (holder, 48)

    def test_the_fleets_backlog_makes_a_recomputation_dearer(self, fleet):
        """The holder waits 2,000 tokens longer than the others: with idle others that is too long for 800 tokens."""
        router = router_of(fleet, "cache_aware")
        holder = serve(router, prompt(*range(50))).worker
        fleet.region.inflight_add(2, holder.slot, 0, 2000)
        lease = router.select(prompt(*range(50)))
        assert lease.worker.id != holder.id
        router.release(lease, "cancelled")
        for slot in range(len(WORKERS)):
            fleet.region.inflight_add(2, slot, 0, 3000)
        assert router.select(prompt(*range(50))).worker.id == holder.id

    def test_multi_holder_least_loaded(self, fleet):
        router = router_of(fleet, "cache_aware")
        for worker in ("w2", "w5"):
            fleet.set_only(worker)
            serve(router, prompt(*range(40)))
        fleet.set_only(*WORKERS)
        held = [router.select(prompt(*range(40))) for _ in range(6)]
        assert Counter(lease.worker.id for lease in held) == {"w2": 3, "w5": 3}
        for lease in held:
            router.release(lease, "ok")

    def test_holder_down_min_load_after_other_holders(self, fleet):
        router = router_of(fleet, "cache_aware")
        for worker in ("w2", "w5"):
            fleet.set_only(worker)
            serve(router, prompt(1, 2, 3, 4))
        fleet.set_only(*WORKERS)
        fleet.set("w2", "not_ready")
        assert serve(router, prompt(1, 2, 3, 4)).worker.id == "w5"
        fleet.set("w5", "failed")
        fleet.region.inflight_add(PROCESS, 0, 1, 0)
        lease = serve(router, prompt(1, 2, 3, 4))
        assert lease.reason == "load"
        assert lease.worker.id not in ("w0", "w2", "w5")

    def test_worker_removed_instant_its_successor_has_nothing(self, fleet):
        router = router_of(fleet, "cache_aware")
        lease = serve(router, prompt(1, 2, 3, 4))
        fleet.index.dismiss(lease.worker.slot)
        fleet.index.admit(lease.worker.slot)
        assert serve(router, prompt(1, 2, 3, 4)).reason == "load"

    def test_a_lease_of_a_removed_worker_teaches_its_successor_nothing(self, fleet):
        router = router_of(fleet, "cache_aware")
        lease = router.select(prompt(1, 2, 3, 4))
        fleet.index.dismiss(lease.worker.slot)
        fleet.index.admit(lease.worker.slot)
        router.commit(lease)
        router.release(lease, "ok")
        assert serve(router, prompt(1, 2, 3, 4)).reason == "load"

    def test_models_do_not_share_prefixes(self, fleet):
        router = router_of(fleet, "cache_aware")
        serve(router, prompt(1, 2, 3, 4))
        assert serve(router, prompt(1, 2, 3, 4, model="llama")).reason == "load"

    def test_burst_no_herding_expected_work_is_even(self, fleet):
        """80 requests at once that share 480 of 512 tokens, which one worker holds: it gets more, but no more work."""
        router = router_of(fleet, "cache_aware")
        head = list(range(30))
        holder = serve(router, prompt(*head, 500)).worker.id
        leases = [router.select(prompt(*head, 1000 + number, 2000 + number)) for number in range(80)]
        work = {name: tokens + 64 * requests for name, (requests, tokens) in fleet.inflight().items()}
        assert max(work.values()) - min(work.values()) <= 512 + 64
        assert Counter(lease.worker.id for lease in leases).most_common(1)[0][0] == holder
        for lease in leases:
            router.release(lease, "ok")

    def test_a_shared_head_spreads_as_others_learn_it(self, fleet):
        router = router_of(fleet, "cache_aware")
        head, leases = list(range(30)), []
        for number in range(160):
            lease = router.select(prompt(*head, 1000 + number, 2000 + number))
            router.commit(lease)
            leases.append(lease)
        loads = Counter(lease.worker.id for lease in leases)
        assert set(loads.values()) == {20}
        for lease in leases:
            router.release(lease, "ok")

    def test_a_head_all_workers_hold_is_no_reason_to_prefer_any(self, fleet):
        router = router_of(fleet, "cache_aware")
        head = list(range(30))
        for worker in WORKERS:
            fleet.set_only(worker)
            serve(router, prompt(*head))
        fleet.set_only(*WORKERS)
        leases = [router.select(prompt(*head, 1000 + number)) for number in range(80)]
        assert set(Counter(lease.worker.id for lease in leases).values()) == {10}

    def test_a_short_match_does_not_count(self, fleet):
        router = router_of(fleet, "cache_aware", cache_threshold=0.5)
        serve(router, prompt(1, 2))
        assert serve(router, prompt(1, 2, 3, 4)).reason == "load"
        serve(router, prompt(5, 6, 7))
        assert serve(router, prompt(5, 6, 7, 8)).reason == "prefix"

    def test_a_match_of_many_tokens_counts_however_long_the_prompt_is(self, fleet):
        router = router_of(fleet, "cache_aware", cache_threshold=0.5)
        holder = serve(router, prompt(*range(40))).worker.id
        lease = serve(router, prompt(*range(40), *range(1000, 1400)))
        assert (lease.worker.id, lease.reason, lease.matched) == (holder, "prefix", 640)

    def test_new_prompts_go_where_caches_have_been_turned_over_least(self, fleet):
        for worker in fleet.workers.values():
            fleet.region.worker_set(worker.slot, COMPUTED, 20_000 if worker.id == "w5" else 400_000)
        lease = serve(router_of(fleet, "cache_aware"), prompt(*range(90)))
        assert lease.worker.id == "w5"
        assert fleet.region.worker_get(lease.worker.slot, COMPUTED) == 20_000 + 90 * 16

    def test_far_apart_loads_override_any_match(self, fleet):
        router = router_of(fleet, "cache_aware", balance_abs_threshold=4)
        lease = serve(router, prompt(*range(90)))
        fleet.region.inflight_add(2, lease.worker.slot, 5, 0)
        other = serve(router, prompt(*range(90)))
        assert other.reason == "spread"
        assert other.worker.id != lease.worker.id

    def test_only_tokens_a_worker_has_to_compute_are_counted(self, fleet):
        router = router_of(fleet, "cache_aware")
        lease = serve(router, prompt(1, 2, 3, 4))
        again = router.select(prompt(1, 2, 3, 4, 5))
        assert fleet.inflight()[lease.worker.id] == (1, 16)
        router.release(again, "ok")

    def test_text_without_tokens_is_enough(self, fleet):
        router = router_of(fleet, "cache_aware")
        lease = serve(router, Query("qwen", text="You are a helpful assistant. " * 20, tokens=100))
        again = serve(router, Query("qwen", text="You are a helpful assistant. " * 20 + "Hi!", tokens=100))
        assert (again.worker.id, again.reason) == (lease.worker.id, "prefix")

    def test_engines_with_blocks_of_another_size_are_asked_in_theirs(self, fleet):
        from smg._native.event_blocks import EventBlocks
        from smg.routing.index.facade import salt_of

        told = EventBlocks(fleet.index, 6, 32, salt_of("qwen", "tokens"))
        told.store([1, 2], [token for token in (1, 2, 3, 4) for _ in range(16)])
        fleet.index.set_live(6, 32)
        lease = serve(router_of(fleet, "cache_aware"), prompt(1, 2, 3, 4))
        assert (lease.worker.id, lease.matched) == ("w6", 64)


class TestLeastLoad:
    def test_the_shortest_wait_wins(self, fleet):
        router = router_of(fleet, "least_load")
        for name, worker in fleet.workers.items():
            fleet.region.worker_set(worker.slot, QUEUED_TOKENS, 100 if name == "w3" else 4000)
        assert serve(router, prompt(1)).worker.id == "w3"

    def test_a_full_cache_is_avoided(self, fleet):
        router = router_of(fleet, "least_load")
        for name, worker in fleet.workers.items():
            fleet.region.worker_set(worker.slot, USAGE, 100_000 if name == "w3" else 990_000)
        assert serve(router, prompt(1)).worker.id == "w3"

    def test_concurrent_picks_fill_up_evenly(self, fleet):
        router = router_of(fleet, "least_load")
        leases = [router.select(prompt(*range(10))) for _ in range(16)]
        assert set(Counter(lease.worker.id for lease in leases).values()) == {2}

    def test_dark_fleet_spread(self, fleet):
        router = router_of(fleet, "least_load")
        assert len({serve(router, prompt(1)).worker.id for _ in range(8)}) == 8


class TestPowerOfTwo:
    def test_the_busier_of_two_is_never_taken(self, fleet):
        fleet.set_only("w1", "w2")
        fleet.region.inflight_add(2, 1, 5, 0)
        router = router_of(fleet, "power_of_two")
        assert {serve(router, prompt(1)).worker.id for _ in range(30)} == {"w2"}

    def test_reported_usage_decides_where_both_report(self, fleet):
        fleet.set_only("w1", "w2")
        fleet.region.inflight_add(2, 1, 5, 0)
        fleet.region.worker_set(1, USAGE, 100_000)
        fleet.region.worker_set(2, USAGE, 900_000)
        router = router_of(fleet, "power_of_two")
        assert {serve(router, prompt(1)).worker.id for _ in range(30)} == {"w1"}

    def test_load_guard_everywhere_a_burst_is_spread(self, fleet):
        router = router_of(fleet, "power_of_two")
        leases = [router.select(prompt(1)) for _ in range(80)]
        assert max(Counter(lease.worker.id for lease in leases).values()) <= 14


class TestConsistentHashing:
    def test_the_published_ring(self):
        ring = HashRing(["http://w1:8000", "http://w2:8000", "http://w3:8000"])
        owners = {f"user-{number}": next(ring.walk(f"user-{number}"))[7:9] for number in (0, 1, 2, 3, 123)}
        assert owners == {"user-0": "w2", "user-1": "w3", "user-2": "w2", "user-3": "w3", "user-123": "w3"}

    @pytest.mark.parametrize("gone", [0.1, 99])
    @settings(max_examples=25)
    @given(fleets=st.lists(st.frozensets(st.integers(0, 6)), max_size=6), key=st.text(max_size=3))
    def test_a_ring_that_follows_is_one_that_is_new(self, gone, fleets, key):
        ring = HashRing()
        with mock.patch("smg.routing.policies.ring._GONE", gone):
            for fleet in fleets:
                names = [f"http://w{number}" for number in fleet]
                ring.update(names)
                assert list(ring.walk(key)) == list(HashRing(names).walk(key))

    def test_a_walk_visits_every_worker_once(self):
        urls = [f"http://w{number}" for number in range(20)]
        assert sorted(HashRing(urls).walk("any")) == sorted(urls)

    def test_a_key_stays_with_its_worker_and_moves_only_when_it_is_gone(self, fleet):
        router = router_of(fleet, "consistent_hashing")
        keys = [Query("qwen", hints=Hints(routing_key=f"user-{number}")) for number in range(60)]
        before = [serve(router, key).worker.id for key in keys]
        assert len(set(before)) == len(WORKERS)
        assert [serve(router, key).worker.id for key in keys] == before
        fleet.set("w3", "not_ready")
        after = [serve(router, key).worker.id for key in keys]
        assert all(old == new for old, new in zip(before, after, strict=True) if old != "w3")
        assert "w3" not in after

    def test_one_key_does_not_pin_everybody_to_one_worker(self, fleet):
        router = router_of(fleet, "consistent_hashing")
        leases = [router.select(Query("qwen", hints=Hints(routing_key="shared"))) for _ in range(80)]
        assert max(Counter(lease.worker.id for lease in leases).values()) <= 13

    @pytest.mark.parametrize("target", ["w5", "grpc://w5", "5"])
    def test_a_target_is_taken_by_id_url_or_number(self, fleet, target):
        fleet.set("w1", "failed")
        lease = serve(router_of(fleet, "consistent_hashing"), Query("qwen", hints=Hints(target_worker=target)))
        assert (lease.worker.id, lease.reason) == ("w5", "target_worker_hit")

    @pytest.mark.parametrize("target", ["w1", "grpc://w1", "1"])
    def test_a_target_that_is_down_has_no_fallback(self, fleet, target):
        fleet.set("w1", "failed")
        with pytest.raises(GatewayError) as caught:
            router_of(fleet, "consistent_hashing").select(Query("qwen", hints=Hints(target_worker=target)))
        assert (caught.value.status, caught.value.code) == (503, "no_available_workers")
        assert fleet.idle()

    @pytest.mark.parametrize("target", ["99", "8", "nobody", "grpc://w", "-1", "9" * 5000])
    def test_a_target_there_is_not_is_the_clients_mistake(self, fleet, target):
        with pytest.raises(GatewayError) as caught:
            router_of(fleet, "consistent_hashing").select(Query("qwen", hints=Hints(target_worker=target)))
        assert (caught.value.status, caught.value.code, caught.value.param) == (
            400,
            "invalid_value",
            "x-smg-target-worker",
        )
        assert "0 to 7" in caught.value.message
        assert fleet.idle()


class TestPrefixHash:
    def test_the_key_of_the_published_vector(self, fleet):
        policy = PrefixHash(RoutingSettings(), fleet.region)
        assert policy.key(Query("m", list(range(300)))) == "d12ba3ba3964c7ed"
        assert policy.key(Query("m", list(range(256)))) == "d12ba3ba3964c7ed"
        assert policy.key(Query("m")) is None

    def test_prompts_that_begin_alike_share_a_worker(self, fleet):
        router = router_of(fleet, "prefix_hash", prefix_token_count=32)
        assert len({serve(router, prompt(1, 2, number)).worker.id for number in range(20)}) == 1
        assert len({serve(router, prompt(number, 2)).worker.id for number in range(60)}) == len(WORKERS)

    def test_an_overloaded_owner_is_passed_over(self, fleet):
        router = router_of(fleet, "prefix_hash")
        leases = [router.select(prompt(1, 2)) for _ in range(800)]
        assert max(Counter(lease.worker.id for lease in leases).values()) <= 1.3 * 100 + 1

    def test_prefix_hash_http_text_has_a_key_too(self, fleet):
        router = router_of(fleet, "prefix_hash", prefix_token_count=4)
        texts = ["all of these begin alike: " + str(number) for number in range(9)]
        assert len({serve(router, Query("qwen", text=text)).worker.id for text in texts}) == 1


class TestManual:
    def ask(self, router, key, model="qwen", leg="regular"):
        return serve(router, Query(model, hints=Hints(routing_key=key), leg=leg))

    def test_a_key_sticks_in_all_processes(self, fleet):
        first, second = router_of(fleet, "manual"), router_of(fleet, "manual", process=2)
        lease = self.ask(first, "k")
        assert lease.reason == "vacant"
        for router in (first, second) * 5:
            again = self.ask(router, "k")
            assert (again.worker.id, again.reason) == (lease.worker.id, "occupied_hit")

    def test_sticky_per_model_and_leg(self, fleet):
        router = router_of(fleet, "manual", assignment_mode="min_load")
        self.ask(router, "k")
        assert self.ask(router, "k", model="llama").reason == "vacant"
        assert self.ask(router, "k", leg="decode").reason == "vacant"

    def test_a_key_whose_worker_is_away_is_assigned_anew_and_stays(self, fleet):
        router = router_of(fleet, "manual")
        lease = self.ask(router, "k")
        fleet.set(lease.worker.id, "not_ready")
        other = self.ask(router, "k")
        assert other.worker.id != lease.worker.id
        assert self.ask(router, "k").worker.id == other.worker.id
        fleet.set(lease.worker.id, "ready")
        back = {self.ask(router, "k").worker.id for _ in range(10)}
        assert len(back) == 1
        assert back <= {lease.worker.id, other.worker.id}

    def test_min_load_gives_a_new_key_to_the_idlest(self, fleet):
        router = router_of(fleet, "manual", assignment_mode="min_load")
        for slot in range(7):
            fleet.region.inflight_add(2, slot, 1, 0)
        assert self.ask(router, "k").worker.id == "w7"

    def test_without_a_key_nothing_sticks(self, fleet):
        router = router_of(fleet, "manual")
        assert {serve(router, Query("qwen")).reason for _ in range(5)} == {"no_routing_id"}
        assert len({serve(router, Query("qwen")).worker.id for _ in range(60)}) > 4


class TestPassthrough:
    def test_the_first_ready_worker_and_one_warning(self, fleet, caplog):
        router = router_of(fleet, "passthrough")
        assert {serve(router, prompt(1)).worker.id for _ in range(3)} == {"w0"}
        fleet.set("w0", "failed")
        assert serve(router, prompt(1)).worker.id == "w1"
        assert len(caplog.records) == 1


class TestRoundRobin:
    def test_rr_per_model(self, fleet):
        router = router_of(fleet, "round_robin")
        turns = []
        for _ in range(4):
            turns.append(serve(router, Query("qwen")).worker.id)
            serve(router, Query("llama"))
        assert len(set(turns)) == 4
