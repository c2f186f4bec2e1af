"""Families, the page, and how they behave over several processes (case OB-02)."""

import asyncio
import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from smg._native.region import Region
from smg.telemetry.cells import COUNTER, LocalCells
from smg.telemetry.families import LABEL_VALUES, MAX_KEY, Histogram, series_key, split_key
from smg.telemetry.lag import LagSampler
from smg.telemetry.metrics import Metrics
from smg.telemetry.page import PIECE, IndexSample, WorkerSample, pieces, render


@pytest.fixture
def region():
    region = Region.create(processes=4, workers=4, series=2048)
    yield region
    region.close()


def scrape(metrics: Metrics, *workers: WorkerSample) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    out: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(render(metrics, workers).decode()):
        for sample in family.samples:
            out.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return out


def test_counters_and_gauges_carry_their_labels():
    metrics = Metrics(LocalCells(), 0)
    metrics.http_requests_total.inc("GET", "/v1/models")
    metrics.http_requests_total.inc("POST", "/v1/chat/completions", amount=3)
    metrics.http_requests_active.add(v=5)
    metrics.http_requests_active.add(v=-2)
    metrics.http_connections_active.set(v=9)
    page = scrape(metrics)
    assert page["smg_http_requests_total"] == {
        (("method", "GET"), ("path", "/v1/models")): 1,
        (("method", "POST"), ("path", "/v1/chat/completions")): 3,
    }
    assert page["smg_http_requests_active"] == {(): 3}
    assert page["smg_http_connections_active"] == {(): 9}


def test_histograms_are_cumulative_and_in_seconds():
    metrics = Metrics(LocalCells(), 0)
    for seconds in (0.0005, 0.001, 0.0011, 2.0, 9999.0, -1.0):
        metrics.router_ttft_seconds.observe(seconds, "m", "chat")
    page = scrape(metrics)
    labels = (("endpoint", "chat"), ("model", "m"))
    counts = {float(dict(key)["le"]): value for key, value in page["smg_router_ttft_seconds_bucket"].items()}
    assert counts[0.001] == 3  # a limit belongs to its bucket
    assert counts[0.005] == 4
    assert counts[1.0] == 4
    assert counts[2.5] == counts[7200.0] == 5
    assert counts[float("inf")] == page["smg_router_ttft_seconds_count"][labels] == 6
    assert page["smg_router_ttft_seconds_sum"][labels] == pytest.approx(10001.0026)
    assert sorted(counts.values()) == [counts[limit] for limit in sorted(counts)]


def test_label_values_may_hold_anything():
    metrics = Metrics(LocalCells(), 0)
    odd = 'a"b\\c\nd é \0!'
    metrics.router_requests_total.inc(odd, "chat", "true")
    (key,) = scrape(metrics)["smg_router_requests_total"]
    assert dict(key)["model"] == odd.replace("\0", "")


def test_the_number_of_label_values_is_bounded():
    metrics = Metrics(LocalCells(), 0)
    for i in range(LABEL_VALUES + 50):
        metrics.engine_aborts_total.inc(f"reason-{i}")
    page = scrape(metrics)["smg_engine_aborts_total"]
    assert len(page) == LABEL_VALUES + 1
    assert page[(("reason", "other"),)] == 50
    metrics.engine_aborts_total.inc("reason-7")
    assert scrape(metrics)["smg_engine_aborts_total"][(("reason", "reason-7"),)] == 2


def test_long_keys_are_cut_within_characters():
    values = ("ü" * 200, "short", "x" * 300)
    key = series_key("smg_name", values)
    assert len(key) <= MAX_KEY
    name, cut = split_key(key)
    assert name == "smg_name"
    assert cut[1] == "short"
    assert set(cut[0]) == {"ü"}


def test_the_wrong_number_of_labels_is_a_mistake():
    with pytest.raises(TypeError, match="labels"):
        Metrics(LocalCells(), 0).http_requests_total.inc("GET")


def test_a_full_table_loses_new_series_and_nothing_else():
    region = Region.create(processes=1, series=2)
    metrics = Metrics(region, 0)
    metrics.engine_aborts_total.inc("a")
    metrics.router_ttft_seconds.observe(1.0, "m", "chat")
    metrics.http_requests_active.add(v=1)
    metrics.engine_aborts_total.inc("a")
    assert scrape(metrics)["smg_engine_aborts_total"] == {(("reason", "a"),): 2}
    region.close()


def test_OB_02_every_process_renders_the_same_page(region):
    one, two = Metrics(region, 1), Metrics(region, 2)
    one.http_requests_total.inc("GET", "/a", amount=3)
    two.http_requests_total.inc("GET", "/a", amount=4)
    two.http_request_duration_seconds.observe(0.2, "GET", "/a")
    one.http_requests_active.add(v=2)
    two.http_requests_active.add(v=1)
    assert render(one) == render(two)
    page = scrape(one)
    assert page["smg_http_requests_total"] == {(("method", "GET"), ("path", "/a")): 7}
    assert page["smg_http_requests_active"] == {(): 3}


def test_OB_02_a_replaced_process_takes_nothing_back(region):
    scraper = Metrics(region, 1)
    pid = os.fork()
    if pid == 0:
        victim = Metrics(region, 2)
        victim.http_requests_total.inc("GET", "/a", amount=1000)
        victim.http_request_duration_seconds.observe(0.2, "GET", "/a")
        victim.http_requests_active.add(v=7)
        os._exit(0)
    os.waitpid(pid, 0)
    before = scrape(scraper)
    assert before["smg_http_requests_active"] == {(): 7}
    region.clear_process(2)
    after = scrape(scraper)
    assert after["smg_http_requests_active"] == {(): 0}
    assert after["smg_http_requests_total"] == before["smg_http_requests_total"]
    assert after["smg_http_request_duration_seconds_bucket"] == before["smg_http_request_duration_seconds_bucket"]
    Metrics(region, 2).http_requests_total.inc("GET", "/a")
    assert scrape(scraper)["smg_http_requests_total"] == {(("method", "GET"), ("path", "/a")): 1001}


def test_series_of_workers_that_are_gone_vanish():
    metrics = Metrics(LocalCells(), 0)
    metrics.worker_selection_total.inc("w1", "m", "random")
    metrics.worker_selection_total.inc("w2", "m", "random")
    page = scrape(metrics, WorkerSample("w2", 4, True), WorkerSample("w3", 0, False))
    assert [dict(key)["worker"] for key in page["smg_worker_selection_total"]] == ["w2"]
    assert page["smg_worker_requests_active"] == {(("worker", "w2"),): 4, (("worker", "w3"),): 0}
    assert page["smg_worker_health"] == {(("worker", "w2"),): 1, (("worker", "w3"),): 0}


def test_which_engine_an_id_stands_for():
    known = WorkerSample("w1", 0, True, 0, 0, "grpc://e1:50051", ("a", "b"), "vllm", "decode")
    page = scrape(Metrics(LocalCells(), 0), known)
    engine = {"worker": "w1", "url": "grpc://e1:50051", "runtime": "vllm", "role": "decode"}
    assert [dict(key) for key in page["smg_worker_info"]] == [engine | {"model": model} for model in ("a", "b")]
    assert set(page["smg_worker_info"].values()) == {1}


def test_every_family_has_the_prefix_a_help_text_and_the_right_suffix():
    for family in Metrics(LocalCells(), 0).families():
        assert family.name.startswith("smg_")
        assert family.text.endswith(".")
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert (family.kind == "histogram") == family.name.endswith(("_seconds", "_ratio"))


def test_RO_06_the_index_is_on_the_page():
    sample = IndexSample(entries=5, places=8, bytes=256, learnt=9, evicted=2, resets=1)
    page = render(Metrics(LocalCells(), 0), index=sample).decode()
    for name, value in (
        ("entries", 5),
        ("places", 8),
        ("bytes", 256),
        ("learnt_prompts_total", 9),
        ("evicted_prompts_total", 2),
        ("resets_total", 1),
    ):
        assert f"\nsmg_prefix_index_{name} {value}.0\n" in page


def test_parts_of_a_prompt_are_counted_by_tenths():
    metrics = Metrics(LocalCells(), 0)
    for part in (0.0, 0.55, 1.0):
        metrics.routing_matched_ratio.observe(part, "m", "cache_aware")
    page = render(metrics).decode()
    for limit, count in (("0", 1), ("0.5", 1), ("0.6", 2), ("1", 3), ("+Inf", 3)):
        assert f'smg_routing_matched_ratio_bucket{{le="{limit}",model="m",policy="cache_aware"}} {count}.0' in page


def test_the_page_is_made_in_pieces_of_few_lines_each(region):
    metrics, taken = Metrics(region, 0), []

    def samples():
        for number in range(2 * PIECE + 1):
            taken.append(number)
            yield WorkerSample(f"w{number}", number, True, models=("a", "b"))

    for number in range(PIECE + 1):
        metrics.worker_selection_total.inc(f"w{number}", "m", "random")
    made = []
    for piece in pieces(metrics, samples()):
        made.append(piece)
        # What is only read counts, too.
        assert len(taken) <= len(made) * PIECE
        assert piece.count(b"\n") <= PIECE + 2 * piece.count(b"# TYPE")
    assert len(taken) == 2 * PIECE + 1
    assert b"".join(made) == render(metrics, samples())
    page = scrape(metrics, *samples())
    assert len(page["smg_worker_selection_total"]) == PIECE + 1
    assert len(page["smg_worker_info"]) == 2 * len(page["smg_worker_requests_active"]) == 2 * (2 * PIECE + 1)


def test_a_series_that_two_processes_made_at_once_is_one_on_the_page():
    class Raced(LocalCells):
        """The same key at two places, on two pages of the table."""

        def series_end(self):
            return PIECE + 1

        def read_series(self, start=0, count=-1):
            return [(series_key("smg_engine_aborts_total", ("stop",)), COUNTER, 3)]

    assert scrape(Metrics(Raced(), 0))["smg_engine_aborts_total"] == {(("reason", "stop"),): 6}


async def test_the_lag_sampler_sees_a_blocked_loop():
    cells = LocalCells()
    histogram = Histogram(cells, 0, "lag_seconds", "Lag.", (), (0.0, 0.05, 1.0))
    task = asyncio.create_task(LagSampler(histogram, interval=0.01).run())
    await asyncio.sleep(0)
    import time

    time.sleep(0.1)  # noqa: ASYNC251 - blocking the loop is the point
    await asyncio.sleep(0.02)
    task.cancel()
    # Once, or more often where the machine holds the loop up as well.
    assert sum(value for key, _, value in cells.read_series() if key == b"smg_lag_seconds_bucket\x002") >= 1
