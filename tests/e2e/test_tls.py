"""The same answers over TLS: a real model, long streams, clients that leave."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.certificates import self_signed
from tests.e2e.test_chat import SEEDED, both_ways
from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = pytest.mark.e2e


def tls(directory: Path) -> tuple[str, ...]:
    files = self_signed(directory)
    return ("--tls-cert-path", files["tls_cert_path"], "--tls-key-path", files["tls_key_path"])


@pytest.fixture(scope="module")
def model(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A real model behind TLS."""
    directory = tmp_path_factory.mktemp("tls")
    with running(settings(directory, "--worker-urls", engine, "--workers", "2", *tls(directory))) as started:
        yield started


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A mock engine of 20 tokens a second behind TLS."""
    directory = tmp_path_factory.mktemp("tls")
    with (
        mock_process("--tokens", "100", "--delay-token-ms", "50", "--model", "slow") as address,
        running(settings(directory, "--worker-urls", f"grpc://{address}", *tls(directory))) as started,
    ):
        yield started


@pytest.mark.parametrize(("prompt", "fields"), [SEEDED[2]])
async def test_streamed_equals_buffered_for_a_seeded_request(model: Gateway, prompt: str, fields: dict):
    assert model.url.startswith("https://")
    options = {"seed": 7, "temperature": 0.8, "max_tokens": 32} | fields
    choices, _ = await both_ways(model.async_client(), prompt, **options)
    assert len(choices) == 3
    assert all(choice.text.strip() for choice in choices)


async def test_a_stream_and_a_buffered_request_of_5_s_beside_each_other(slow: Gateway):
    client = slow.async_client(timeout=60)
    question = {"model": "slow", "messages": [{"role": "user", "content": "x"}]}

    async def stream() -> str:
        chunks = await client.chat.completions.create(stream=True, **question)
        return "".join([choice.delta.content or "" async for chunk in chunks for choice in chunk.choices])

    text, whole = await asyncio.gather(stream(), client.chat.completions.create(**question))
    assert text == whole.choices[0].message.content
    assert whole.usage.completion_tokens == 101
    assert slow.metric("smg_requests_inflight") == 0


async def leave(gateway: Gateway, stream: bool) -> None:
    """Ask for an answer of five seconds and go away after half a second of it."""
    async with httpx.AsyncClient(verify=gateway.tls, timeout=30) as client:
        asked = client.send(
            client.build_request(
                "POST", gateway.url + "/v1/chat/completions", content=body(model="slow", stream=stream)
            ),
            stream=stream,
        )
        with contextlib.suppress(TimeoutError):
            response = await asyncio.wait_for(asked, 0.5)
            await response.aclose()


@pytest.mark.parametrize("stream", [True, False])
async def test_RL_04_a_client_that_leaves_over_tls_stops_its_engine(slow: Gateway, stream: bool):
    aborts = slow.metric("smg_engine_aborts_total")
    await leave(slow, stream)
    await asyncio.to_thread(
        wait_for,
        lambda: slow.metric("smg_requests_inflight") == 0 and slow.metric("smg_worker_requests_active") == 0,
        5,
        "the gateway is idle",
    )
    assert slow.metric("smg_engine_aborts_total") == aborts + 1


def test_plain_http_to_the_tls_port_is_refused_and_harms_nobody(slow: Gateway):
    with pytest.raises(httpx.TransportError):
        httpx.get(slow.url.replace("https://", "http://") + "/health", timeout=5)
    assert slow.get("/health").status_code == 200
