"""Streams that are left, engines that restart, connections that go away: after minutes nothing is left (DESIGN 6)."""

import asyncio
import collections
import contextlib
import json
import os
import random
import signal
import socket
import sys

import httpx
import pytest

from tests.faults.test_disconnects import idle, rss
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(600)]

STREAMS = 64
MIB = 1 << 20


class Engine:
    """A mock engine on a port of its own that is ended and started again."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    async def start(self) -> None:
        flags = ["--port", str(self.port), "--tokens", "60", "--delay-token-ms", "5", "--model", "mock"]
        command = [sys.executable, "-m", "smg.cli.engine", "mock", *flags]
        self.process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert json.loads(await self.process.stdout.readline())["ready"]

    async def end(self, number: signal.Signals) -> None:
        """With SIGTERM it says GOAWAY and lets its streams finish, with SIGKILL it is just gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        await self.process.wait()


async def one_stream(client: httpx.AsyncClient, url: str, draw: random.Random) -> str:
    """Ask, read as much as it happens, and tell how it ended."""
    lines, wanted = 0, draw.choice([1, 2, 5, 20, 40, 10_000])
    async with client.stream("POST", url, content=body(stream=True, max_tokens=200, model="mock")) as response:
        if response.status_code != 200:
            assert response.status_code in (502, 503), await response.aread()
            return "refused"
        async for line in response.aiter_lines():
            lines += bool(line)
            if line == "data: [DONE]":
                return "complete"
            if '"error"' in line:
                return "failed"
            if lines >= wanted:
                return "left"
    return "cut"


async def streaming(gateway: Gateway, draw: random.Random, over: asyncio.Event, ends: collections.Counter) -> None:
    """Streams one after another, until it is over."""
    url = gateway.url + "/v1/chat/completions"
    async with httpx.AsyncClient(timeout=60) as client:
        while True:
            ends[await one_stream(client, url, draw)] += 1
            if over.is_set():
                return


async def round_of_streams(gateway: Gateway, draw: random.Random, seconds: float) -> collections.Counter:
    """``STREAMS`` at a time for so long; then everything has to be given back."""
    over, ends = asyncio.Event(), collections.Counter()
    running_all = asyncio.gather(*(streaming(gateway, draw, over, ends) for _ in range(STREAMS)))
    await asyncio.sleep(seconds)
    over.set()
    await running_all
    await asyncio.to_thread(wait_for, lambda: idle(gateway), 20, "the gateway and its engines are idle")
    return ends


async def restarting(engines: list[Engine], draw: random.Random, ways: collections.Counter) -> None:
    """End one engine and start it again, every two seconds."""
    while True:
        await asyncio.sleep(1 + 2 * draw.random())
        engine, way = draw.choice(engines), draw.choice([signal.SIGTERM, signal.SIGKILL])
        await engine.end(way)
        await engine.start()
        ways[way.name] += 1


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize("seconds", [20, 150])
async def test_64_streams_with_leaving_clients_and_restarting_engines(transport, seconds, tmp_path, record_property):
    draw = random.Random(seconds)
    engines = [Engine(), Engine()]
    for engine in engines:
        await engine.start()
    urls = [f"grpc://127.0.0.1:{engine.port}" for engine in engines]
    quick = ("--health-check-interval-secs", "1", "--health-success-threshold", "1")
    configured = settings(tmp_path, "--worker-urls", *urls, "--engine-transport", transport, *quick)
    manager = running(configured)
    gateway = await asyncio.to_thread(manager.__enter__)
    try:
        worker = gateway.child("worker-1")
        ends = await round_of_streams(gateway, draw, seconds / 3)
        assert set(ends) == {"left", "complete"}
        before = rss(worker), descriptors(worker)
        ways: collections.Counter = collections.Counter()
        chaos = asyncio.create_task(restarting(engines, draw, ways))
        ends = await round_of_streams(gateway, draw, seconds)
        chaos.cancel()
        await asyncio.wait([chaos])
        assert not ends["cut"], ends
        # Where an engine is lost the other one goes on with the stream; few find none at all.
        assert ends["left"] + ends["complete"] > 0.9 * ends.total(), ends
        for engine in engines:
            if engine.process.returncode is not None:
                await engine.start()
        calm = await round_of_streams(gateway, draw, 3)
        after = rss(worker), descriptors(worker)
        facts = {"ends": dict(ends), "calm": dict(calm), "restarts": dict(ways), "before": before, "after": after}
        record_property("soak", facts)
        assert gateway.child("worker-1") == worker
        assert after[0] - before[0] < 12 * MIB, facts
        # A few connections more or less are open at any time.
        assert abs(after[1] - before[1]) <= 8, facts
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)
        for engine in engines:
            await engine.end(signal.SIGKILL)
