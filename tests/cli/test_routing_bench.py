"""``smg-bench routing`` on a small scale: every trace and policy runs, the same each time, and what it shows holds."""

import json

import pytest

from smg.cli import bench, routing_bench
from smg.cli.routing_bench import Replica, Request, Simulation
from smg.cli.routing_traces import TRACES, Arrival, Loss, Trace

FIGURES = {"hit_token_ratio", "ttft_mean_ms", "ttft_p99_ms", "max_over_mean_load"}
RATIOS = {name + end for name in routing_bench.COMPARED for end in ("", "_worst")}


def test_one_json_object_by_trace_and_policy(capsys):
    assert bench.main(["routing", "--json", "--requests", "24", "--seeds", "1", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures.keys() == TRACES.keys()
    for policies in figures.values():
        assert set(policies) == set(routing_bench.POLICIES)
        for values in policies.values():
            assert values.keys() == FIGURES | RATIOS
            assert 0 <= values["hit_token_ratio"] < 1 <= values["max_over_mean_load"] <= routing_bench.REPLICAS
            assert 0 < values["ttft_mean_ms"] <= values["ttft_p99_ms"]


def test_the_table_for_people(capsys):
    assert bench.main(["routing", "--requests", "8", "--seeds", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + len(TRACES) * (len(routing_bench.POLICIES) + len(routing_bench.COMPARED))


@pytest.mark.parametrize("name", sorted(TRACES))
def test_a_seed_always_gives_the_same_trace_and_another_one_another(name):
    assert TRACES[name](10, 1) == TRACES[name](10, 1) != TRACES[name](10, 2)


def test_ratios_are_taken_seed_by_seed():
    rounds = [
        {"a": {"ttft_p99_ms": ours, "hit_token_ratio": 0.6}, "reference": {"ttft_p99_ms": 4.0, "hit_token_ratio": hits}}
        for ours, hits in ((1.0, 0.5), (3.0, 0.6), (2.0, 0.8))
    ]
    for values in rounds:
        for policy in values.values():
            policy["ttft_mean_ms"] = 8.0
    assert routing_bench._ratios(rounds, "a") == {
        "hit_tokens_by_reference": 1.0,
        "hit_tokens_by_reference_worst": 0.75,
        "ttft_mean_by_reference": 1.0,
        "ttft_mean_by_reference_worst": 1.0,
        "ttft_p99_by_reference": 0.5,
        "ttft_p99_by_reference_worst": 0.75,
    }


RIVALS = ("cache_aware", "round_robin", "reference")


def test_cache_aware_beats_turns_and_the_reference_on_shared_prompts():
    ours = routing_bench.run(800, RIVALS, ("shared_prompt",), (201,))["shared_prompt"]["cache_aware"]
    assert ours["ttft_mean_by_round_robin"] < 0.77
    assert ours["ttft_p99_by_round_robin"] < 0.72
    assert ours["ttft_p99_by_reference"] < 0.85
    assert ours["hit_tokens_by_reference"] > 1


@pytest.mark.full
@pytest.mark.timeout(900)
def test_cache_aware_dominates_the_reference_on_every_trace_and_seed():
    """Spec routing 12, on seeds that no parameter was chosen by."""
    figures = {name: policies["cache_aware"] for name, policies in routing_bench.run(policies=RIVALS).items()}
    assert all(ours["hit_tokens_by_reference_worst"] >= 1 for ours in figures.values()), figures
    assert all(ours["ttft_p99_by_reference_worst"] <= 1 for ours in figures.values()), figures
    assert sum(ours["ttft_p99_by_reference"] <= 0.85 for ours in figures.values()) >= 3, figures
    shared = figures["shared_prompt"]
    assert (shared["ttft_mean_by_round_robin"] <= 0.77, shared["ttft_p99_by_round_robin"] <= 0.72) == (True, True)


class TestReplica:
    def request(self, *ids: int) -> Request:
        return Request(Arrival(0.0, [token for token in ids for _ in range(16)], 10))

    def test_what_is_cached_is_not_computed_again(self):
        replica, request = Replica(), self.request(1, 2, 3)
        assert replica.begin(request)[1] == 0
        replica.keep(request)
        took, cached = replica.begin(self.request(1, 2, 9))
        assert (cached, replica.computed) == (32, 48 + 16)
        assert took == pytest.approx(routing_bench.PREFILL_BASE_S + 16 / routing_bench.PREFILL_TOKENS_PER_S)

    def test_the_last_token_is_always_computed(self):
        replica, request = Replica(), self.request(1, 2)
        replica.keep(request)
        assert replica.begin(request)[1] == 31

    def test_the_least_recently_used_blocks_are_forgotten_leaves_first(self, monkeypatch):
        monkeypatch.setattr(routing_bench, "CACHE_TOKENS", 64)
        replica = Replica()
        replica.keep(self.request(1, 2, 3))
        replica.keep(self.request(7, 8))
        assert replica.begin(self.request(1, 2, 3))[1] == 32
        assert replica.begin(self.request(7, 8, 9))[1] == 32


def test_a_lost_replica_answers_nothing_and_nothing_is_lost():
    arrivals = [Arrival(0.01 * number, [number] * 800, 5) for number in range(60)]
    simulation = Simulation(Trace(arrivals, (Loss(3, 0.2, 99.0),)), "round_robin")
    simulation.run()
    assert len(simulation._done) == 60
    assert all(request.lease.worker.slot != 3 for request in simulation._done if request.arrival.at >= 0.2)
