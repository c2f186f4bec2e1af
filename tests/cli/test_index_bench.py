"""``smg-bench index`` on a small scale: every workload runs, checks itself and reports."""

import json

import pytest

from smg.cli import bench, index_bench

TARGETS = [
    "w1b_inserts_per_s",
    "w2_matches_per_s",
    "w3_ops_per_s_per_core",
    "w4_resident_bytes_per_10k",
    "event_query_512_us_p50",
    "decision_64_us_p50",
    "decision_2048_us_p50",
]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(index_bench, "POOL", 400)
    monkeypatch.setattr(index_bench, "ROUNDS", 1)
    calls = index_bench.micros_p50
    monkeypatch.setattr(index_bench, "micros_p50", lambda body, count=0: calls(body, 3))


def test_one_json_object_with_all_figures(capsys):
    assert bench.main(["index", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert all(figures[name] > 0 for name in TARGETS)
    assert {"w1a_first_insert_us_p50", "w1c_repeat_inserts_per_s", "w5_match_1024_tokens_us_p50"} <= set(figures)
    assert {"w6_literal_block_ops_per_s", "w6_hits_block_ops_per_s"} <= set(figures)
    assert figures["reference"]["w1_inserts_per_s"] == 216_000
    assert figures["w4_load"] <= 0.85


def test_the_table_for_people(capsys):
    assert bench.main(["index"]) == 0
    assert "w1b_inserts_per_s" in capsys.readouterr().out


def test_the_pool_is_as_published():
    prompts = index_bench.prompts()
    assert len(set(prompts)) == 400
    assert len({prompt[:2] for prompt in prompts if prompt.startswith("<")}) == 1
    assert 1000 <= min(map(len, prompts)) <= max(map(len, prompts)) <= 2999 + 78
