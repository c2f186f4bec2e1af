"""What one process does to itself: no prompt stops the others, no request leaves memory behind (case PF-01)."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.script import prompt_words
from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LONG_TOKENS = 200_000
ANSWER = 8


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    engine = ("--tokens", str(ANSWER), "--context-length", str(1 << 20), "--model", "mock")
    with (
        mock_process(*engine) as address,
        running(settings(state, "--worker-urls", f"grpc://{address}")) as started,
    ):
        yield started


def lags_above(gateway: Gateway, seconds: str) -> float:
    """How many timers of the event loop were later than that."""
    page = gateway.get("/metrics").text
    counts = dict(re.findall(r'^smg_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', page, re.MULTILINE))
    return float(counts.get("+Inf", 0)) - float(counts.get(seconds, 0))


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


def ids_of(content: str) -> list[int]:
    encode = mock.tokenizer().encode
    whole = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    return list(encode(whole, add_special_tokens=False).ids)


async def test_PF_01_long_prompts_do_not_stop_the_event_loop(gateway: Gateway):
    before = lags_above(gateway, "0.5")
    # Each one different from its first word on, and a second's work for the tokenizer.
    prompts = [f"{number}:" + " the" * LONG_TOKENS for number in range(4)]
    async with httpx.AsyncClient(timeout=60) as client:
        answers = await asyncio.gather(
            *(
                client.post(
                    gateway.url + "/v1/chat/completions",
                    content=body(model="mock", messages=[{"role": "user", "content": prompt}]),
                )
                for prompt in prompts
            )
        )
    for prompt, answer in zip(prompts, answers, strict=True):
        ids, found = ids_of(prompt), answer.json()
        assert found["usage"]["prompt_tokens"] == len(ids) > LONG_TOKENS
        text = mock.tokenizer().decode(prompt_words(ids, 0, ANSWER))
        assert found["choices"][0]["message"]["content"].strip() == text.strip()
    # The sampler looks twice a second.
    await asyncio.sleep(1)
    assert lags_above(gateway, "0.5") == before


async def ask(client: httpx.AsyncClient, gateway: Gateway, number: int) -> None:
    """Send one request: buffered, streamed, or streamed and left."""
    content = body(
        model="mock",
        messages=[{"role": "user", "content": f"Question {number} about the weather"}],
        stream=number % 3 > 0,
        max_tokens=ANSWER,
    )
    async with client.stream("POST", gateway.url + "/v1/chat/completions", content=content) as response:
        assert response.status_code == 200
        async for _ in response.aiter_bytes():
            if number % 30 == 1:
                break


async def many(gateway: Gateway, numbers: range) -> None:
    lanes = 16
    async with httpx.AsyncClient(timeout=60) as client:

        async def lane(first: int) -> None:
            for number in numbers[first::lanes]:
                await ask(client, gateway, number)

        await asyncio.gather(*(lane(first) for first in range(lanes)))


async def test_1000_requests_leave_no_memory_behind(gateway: Gateway):
    worker = gateway.child("worker-1")
    await many(gateway, range(600))
    before = rss(worker)
    await many(gateway, range(600, 1600))
    # Growth that is meant: the cache keeps the ids of these prompts, about 200 bytes each.
    assert rss(worker) - before < 3 << 20
    assert gateway.metric("smg_requests_inflight") == gateway.metric("smg_worker_requests_active") == 0
