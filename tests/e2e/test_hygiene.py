"""What one process does to itself: no prompt stops the others, no request leaves memory behind (case PF-01)."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.script import prompt_words
from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LONG_TOKENS = 200_000
ANSWER = 8
STEADY = 120


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


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


async def gaps_of_a_stream(client: httpx.AsyncClient, gateway: Gateway) -> list[tuple[float, float]]:
    """When each chunk of a stream of 20 tokens a second came, and how long after the one before."""
    content = body(model="steady", stream=True, max_tokens=STEADY)
    found, last = [], time.monotonic()
    async with client.stream("POST", gateway.url + "/v1/chat/completions", content=content) as response:
        async for _ in response.aiter_raw():
            now = time.monotonic()
            found.append((now, now - last))
            last = now
    # The first one waited for the engine.
    return found[1:]


async def health_checks(client: httpx.AsyncClient, gateway: Gateway, seconds: list[float]) -> None:
    while True:
        start = time.monotonic()
        assert (await client.get(gateway.url + "/health")).status_code == 200
        seconds.append(time.monotonic() - start)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("transport", ["grpcio", "native"])
async def test_PF_01_streams_go_on_while_long_prompts_are_encoded(transport, tmp_path, record_property):
    """The figures are recorded; the bounds are wide, because clients and engines share the machine with the gateway."""
    steady = ("--delay-token-ms", "50", "--tokens", str(STEADY), "--model", "steady")
    other = ("--tokens", "4", "--context-length", str(1 << 20), "--model", "mock")
    with mock_process(*steady) as one, mock_process(*other) as two:
        flags = ("--worker-urls", f"grpc://{one}", f"grpc://{two}", "--engine-transport", transport)
        with running(settings(tmp_path, *flags)) as started:
            await check_streams_beside_long_prompts(started, record_property)


async def check_streams_beside_long_prompts(gateway: Gateway, record: Callable[[str, object], None]) -> None:
    texts = [f"{number}:" + " the" * 128_000 for number in range(8)]
    seconds: list[float] = []
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        streams = [asyncio.create_task(gaps_of_a_stream(client, gateway)) for _ in range(20)]
        await asyncio.sleep(2)
        begin = time.monotonic()
        health = asyncio.create_task(health_checks(client, gateway, seconds))
        counting = {"content": msgspec.json.encode({"model": "mock", "prompt": texts[0]})}
        answers = await asyncio.gather(
            client.post(gateway.url + "/v1/tokenize", **counting),
            *(
                client.post(
                    gateway.url + "/v1/chat/completions",
                    content=body(model="mock", messages=[{"role": "user", "content": text}]),
                )
                for text in texts
            ),
        )
        end = time.monotonic()
        health.cancel()
        gaps = [gap for stream in await asyncio.gather(*streams) for gap in stream]
    assert {answer.status_code for answer in answers} == {200}
    calm = p99([gap for at, gap in gaps if at < begin])
    busy = p99([gap for at, gap in gaps if begin <= at <= end])
    record("p99 gap, ms", {"calm": round(calm * 1000, 1), "busy": round(busy * 1000, 1)})
    record("p99 of /health, ms", round(p99(seconds) * 1000, 1))
    assert busy - calm < 0.5
    assert p99(seconds) < 0.5


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
