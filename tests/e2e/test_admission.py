"""The limit and the line over two worker processes (cases LM-01, RL-04)."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    limits = ("--max-concurrent-requests", "2", "--queue-size", "1")
    with (
        mock_process("--tokens", "50", "--delay-token-ms", "100", "--model", "slow") as address,
        running(settings(state, "--workers", "2", "--worker-urls", f"grpc://{address}", *limits)) as started,
    ):
        yield started


async def ask(gateway: Gateway, tokens: int = 8) -> httpx.Response:
    # A connection of its own, so that the kernel chooses the process.
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.post(gateway.url + "/v1/chat/completions", content=body(model="slow", max_tokens=tokens))


def counts(gateway: Gateway) -> tuple[float, float]:
    return gateway.metric("smg_requests_inflight"), gateway.metric("smg_admission_queue_depth")


async def test_LM_01_of_four_at_once_two_run_one_waits_and_one_is_refused(gateway: Gateway):
    for round_ in range(1, 4):
        answers = await asyncio.gather(*(ask(gateway) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 429]
        (refused,) = (answer for answer in answers if answer.status_code == 429)
        assert refused.json()["error"]["code"] == "queue_full"
        assert refused.headers["retry-after"] == "1"
        assert counts(gateway) == (0, 0)
        assert gateway.metric("smg_admission_rejections_total") == round_
        assert gateway.metric("smg_admission_wait_seconds_count") == round_


async def test_RL_04_a_waiting_client_that_leaves_makes_room_in_the_line(gateway: Gateway):
    two = [asyncio.create_task(ask(gateway, 50)) for _ in range(2)]
    await asyncio.to_thread(wait_for, lambda: counts(gateway) == (2, 0), 5, "two run")
    third = asyncio.create_task(ask(gateway))
    await asyncio.to_thread(wait_for, lambda: counts(gateway) == (2, 1), 5, "one waits")
    third.cancel()
    await asyncio.to_thread(wait_for, lambda: counts(gateway)[1] == 0, 5, "nobody waits")
    assert (await ask(gateway)).status_code == 200
    assert [answer.status_code for answer in await asyncio.gather(*two)] == [200, 200]


@pytest.mark.parametrize("queue", [0, 100])
async def test_LM_01_twenty_at_once_under_a_rate_of_five_per_second(queue, tmp_path):
    limits = ("--rate-limit-tokens-per-second", "5", "--max-concurrent-requests", "-1", "--queue-size", str(queue))
    with (
        mock_process("--tokens", "1", "--model", "slow") as address,
        running(settings(tmp_path, "--workers", "2", "--worker-urls", f"grpc://{address}", *limits)) as gateway,
    ):
        start = time.monotonic()
        answers = await asyncio.gather(*(ask(gateway) for _ in range(20)))
        seconds = time.monotonic() - start
        good = sum(answer.status_code == 200 for answer in answers)
        if queue:
            assert good == 20
            assert seconds > 15 / 5
        else:
            assert 5 <= good <= 5 + 5 * seconds
            refused = [answer for answer in answers if answer.status_code != 200]
            assert {answer.status_code for answer in refused} == {429}
            assert {answer.headers["retry-after"] for answer in refused} == {"1"}
            assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}
        assert counts(gateway) == (0, 0)
