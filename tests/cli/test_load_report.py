"""The figures of smg-bench load."""

import pytest

from smg.cli.load_report import Record, percentile, spread, summarize, text
from smg.cli.process_usage import Usage


def report(records, streamed=True, seconds=2.0, usage=None):
    return summarize(records, url="http://x", model="m", streamed=streamed, concurrency=2, seconds=seconds, usage=usage)


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles_are_nearest_rank(share, value):
    assert percentile(list(range(1, 101)), share) == value


def test_a_spread_is_in_milliseconds_and_needs_no_order():
    found = spread([0.003, 0.001, 0.002])
    assert (found.mean, found.p50, found.p90, found.max) == (2.0, 2.0, 3.0, 3.0)
    assert spread([]) is None


def test_failed_requests_count_as_errors_and_nowhere_else():
    good = Record(latency=1.0, first=0.5, gaps=[0.25, 0.25], prompt_tokens=10, output_tokens=3)
    found = report([good, good, Record(error="HTTP 429", latency=9.0), Record(error="HTTP 429", latency=9.0)])
    assert (found.requests, found.completed, found.errors) == (4, 2, {"HTTP 429": 2})
    assert found.requests_per_second == 1.0
    assert (found.prompt_tokens, found.output_tokens, found.output_tokens_per_second) == (20, 6, 3.0)
    assert found.latency_ms.max == 1000.0
    assert found.ttft_ms.p50 == 500.0
    assert found.itl_ms.p99 == 250.0
    assert found.tpot_ms.mean == 250.0


def test_a_run_of_errors_has_no_times():
    found = report([Record(error="TimeoutError")])
    assert found.latency_ms is found.ttft_ms is found.itl_ms is found.tpot_ms is None
    assert "1 x TimeoutError" in text(found)


def test_buffered_answers_have_no_time_per_token():
    found = report([Record(latency=1.0, first=1.0, output_tokens=5)], streamed=False)
    assert found.tpot_ms is None
    assert found.itl_ms is None


def test_cpu_is_told_per_million_output_tokens():
    usage = Usage(processes=3, cpu_seconds=0.5, rss_mib_peak=100.0, cpu_seconds_by_command={"smg-server": 0.5})
    found = report([Record(latency=1.0, output_tokens=1000)], usage=usage)
    assert found.cpu_seconds_per_million_tokens == 500.0
    assert "smg-server: 0.5 CPU s" in text(found)
    assert report([Record(error="x")], usage=usage).cpu_seconds_per_million_tokens is None
