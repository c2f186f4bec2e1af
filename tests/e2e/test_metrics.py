"""The metrics page of four processes, scraped while they work and over the death of one (case OB-02)."""

import asyncio
import os
import signal
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = pytest.mark.e2e

REQUESTS, SCRAPES, LANES = 1000, 20, 10
CHAT = "/v1/chat/completions"


@pytest.fixture
def gateway(tmp_path) -> Iterator[Gateway]:
    with (
        mock_process("--tokens", "2", "--model", "mock") as address,
        running(settings(tmp_path, "--workers", "4", "--worker-urls", f"grpc://{address}")) as started,
    ):
        yield started


class Scraper:
    """Scrapes again and again; fails when anything monotone falls."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.seen: dict[tuple, float] = {}
        self.gauges: dict[tuple, float] = {}

    async def look(self, times: int) -> None:
        for _ in range(times):
            page = (await asyncio.to_thread(self.gateway.get, "/metrics")).text
            now: dict[tuple, float] = {}
            for family in text_string_to_metric_families(page):
                for sample in family.samples:
                    place = now if family.type in ("counter", "histogram") else self.gauges
                    place[sample.name, *sorted(sample.labels.items())] = sample.value
            for key, value in self.seen.items():
                assert now.get(key, 0) >= value, key
            self.seen = now

    def sum(self, name: str, **labels: str) -> float:
        wanted = set(labels.items())
        return sum(v for key, v in (self.seen | self.gauges).items() if key[0] == name and wanted <= set(key[1:]))


async def ask_many(gateway: Gateway, count: int) -> None:
    # A connection each time, so that all processes get their share.
    async with httpx.AsyncClient(timeout=30, headers={"connection": "close"}) as client:

        async def lane() -> None:
            for _ in range(count // LANES):
                answer = await client.post(gateway.url + CHAT, content=body(model="mock", max_tokens=2))
                assert answer.status_code == 200

        await asyncio.gather(*(lane() for _ in range(LANES)))


async def test_OB_02_counters_sum_over_processes_and_survive_one(gateway: Gateway):
    scraper = Scraper(gateway)
    for _ in range(SCRAPES):
        await asyncio.gather(ask_many(gateway, REQUESTS // SCRAPES), scraper.look(1))
    await scraper.look(1)

    def check() -> None:
        assert scraper.sum("smg_http_requests_total", path=CHAT) == REQUESTS
        assert scraper.sum("smg_http_responses_total", path=CHAT, status_code="200") == REQUESTS
        assert scraper.sum("smg_http_request_duration_seconds_count", path=CHAT) == REQUESTS
        assert scraper.sum("smg_http_request_duration_seconds_bucket", path=CHAT, le="+Inf") == REQUESTS
        assert scraper.sum("smg_router_tokens_total", token_type="output") == 2 * REQUESTS
        assert scraper.sum("smg_requests_inflight") == 0
        assert scraper.sum("smg_worker_health") == 1
        # The scrape itself.
        assert scraper.sum("smg_http_requests_active") == 1

    check()
    victim = gateway.child("worker-2")
    os.kill(victim, signal.SIGKILL)
    # Scraped right away, and until the one that replaces it serves.
    await scraper.look(SCRAPES)
    await asyncio.to_thread(wait_for, lambda: gateway.child("worker-2") != victim, 10, "the worker is replaced")
    await scraper.look(SCRAPES)
    check()
    assert scraper.sum("smg_process_restarts_total") == 1
    await ask_many(gateway, 100)
    await scraper.look(1)
    assert scraper.sum("smg_http_requests_total", path=CHAT) == REQUESTS + 100
