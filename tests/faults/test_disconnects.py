"""Clients that leave (case RL-04): the engine stops, nothing leaks."""

import asyncio
import random
import re
from pathlib import Path

import httpx
import pytest

from tests.certificates import self_signed
from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with running(settings(tmp_path_factory.mktemp("state"), "--embedded-engine", "--workers", "2")) as started:
        yield started


def idle(gateway: Gateway) -> bool:
    return (
        gateway.engine_running() == 0
        and gateway.metric("smg_requests_inflight") == 0
        and gateway.metric("smg_worker_requests_active") == 0
    )


async def leave_stream(client: httpx.AsyncClient, url: str, lines: int, **fields: object) -> str:
    """Read some lines of a stream, then close the connection (or read all when it ends before)."""
    seen = 0
    async with client.stream("POST", url, content=body(**{"stream": True, "max_tokens": 200, **fields})) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            seen += bool(line)
            if line == "data: [DONE]":
                return "complete"
            if seen >= lines:
                return "left"
    return "cut"


async def test_64_streams_with_random_disconnects_leave_nothing_behind(gateway: Gateway):
    draw = random.Random(20)
    url = gateway.url + "/v1/chat/completions"
    limits = httpx.Limits(max_connections=80)
    async with httpx.AsyncClient(timeout=100, limits=limits) as client:
        ends = await asyncio.gather(*(leave_stream(client, url, draw.choice([1, 2, 5, 20, 10_000])) for _ in range(64)))
    assert "cut" not in ends
    assert ends.count("left") > 30
    await asyncio.to_thread(wait_for, lambda: idle(gateway), 5, "engine and gateway idle after 64 streams")


@pytest.mark.parametrize("extra", [{}, {"n": 1, "logprobs": False}])
async def test_rl_04_a_buffered_request_whose_client_leaves_is_aborted(gateway: Gateway, extra):
    url = gateway.url + "/v1/chat/completions"
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(url, content=body(max_tokens=1500, ignore_eos=True, **extra), timeout=0.5)
    took = await asyncio.to_thread(wait_for, lambda: idle(gateway), 5, "idle after a buffered request was left")
    assert took < 5
    assert gateway.metric("smg_engine_aborts_total") >= 1


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


# Whether over TLS, how many rounds of 64 streams, and after which one the memory is measured first.
ROUNDS = [
    pytest.param(False, 4, 2, id="4-rounds"),
    pytest.param(False, 20, 5, id="20-rounds", marks=pytest.mark.full),
    pytest.param(True, 20, 5, id="20-rounds-tls", marks=pytest.mark.full),
]


@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize(("tls", "rounds", "warm"), ROUNDS)
async def test_rl_04_rounds_of_64_streams_leave_neither_counts_nor_memory(
    transport, tls, rounds, warm, tmp_path, record_property
):
    draw = random.Random(64)
    engine = ("--tokens", "60", "--delay-token-ms", "5", "--model", "mock")
    with mock_process(*engine) as one, mock_process(*engine) as two:
        flags = ["--worker-urls", f"grpc://{one}", f"grpc://{two}", "--engine-transport", transport]
        if tls:
            files = self_signed(tmp_path)
            flags += ["--tls-cert-path", files["tls_cert_path"], "--tls-key-path", files["tls_key_path"]]
        with running(settings(tmp_path, *flags)) as started:
            worker, sizes = started.child("worker-1"), []
            for _ in range(rounds):
                ends = await round_of_streams(started, draw)
                assert "cut" not in ends
                assert {"left", "complete"} == set(ends)
                await asyncio.to_thread(wait_for, lambda: idle(started), 10, "the gateway and its engines are idle")
                sizes.append(rss(worker))
            record_property("resident KiB after each round", [size >> 10 for size in sizes])
            assert started.child("worker-1") == worker
            # It goes up and down by 2 MB from round to round.
            grown = sizes[-1] - sizes[warm - 1]
            assert grown < 8 << 20, [size >> 10 for size in sizes]


async def round_of_streams(gateway: Gateway, draw: random.Random) -> list[str]:
    """64 streams at once; some leave at once, some in the middle, some never."""
    url = gateway.url + "/v1/chat/completions"
    limits = httpx.Limits(max_connections=80)
    lines = [draw.choice([1, 2, 5, 20, 40, 10_000]) for _ in range(64)]
    async with httpx.AsyncClient(timeout=60, limits=limits, verify=gateway.tls or True) as client:
        return await asyncio.gather(*(leave_stream(client, url, count, model="mock") for count in lines))
