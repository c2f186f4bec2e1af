"""Clients that do not read (case ME-01), plain and over TLS: memory is bounded, the engine paused, the answer whole."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from smg.engine_server.mock import MockEngine, Script
from tests.certificates import self_signed
from tests.gateway import Gateway, body, running, settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Each stream is over 20 MB to the client and half a megabyte from the engine, twice the window of its call.
TOKENS = 120_000
WORD = " the"
SCRIPT = Script.text(WORD * TOKENS, per_chunk=16)
HELD_PER_STREAM = 1 << 20
# What the allocator takes or gives back meanwhile, whoever waits.
NOISE = 3 << 20


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


async def connect(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a stream and read nothing of it."""
    host, port = gateway.url.split("//")[1].split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    server = host if gateway.tls else None
    reader, writer = await asyncio.open_connection(
        sock=connection, limit=16 << 10, ssl=gateway.tls, server_hostname=server
    )
    data = body(model="mock-model", stream=True, max_tokens=TOKENS)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return reader, writer


async def read_all(reader: asyncio.StreamReader) -> int:
    """Read an answer to its end; returns how often it has the word in it."""
    pieces = [await reader.read(1 << 20)]
    while not pieces[-1].endswith(b"0\r\n\r\n"):
        pieces.append(await reader.read(1 << 20))
        assert pieces[-1], "the answer was cut"
    return b"".join(pieces).count(f'"content":"{WORD}"'.encode())


async def settled(engine: MockEngine) -> list[int]:
    """Wait until the engine sends nothing more; returns how many tokens each call has sent."""
    before: list[int] = []
    while True:
        now = [sum(map(len, entry.sent)) for entry in engine.requests]
        if now == before:
            return now
        before = now
        await asyncio.sleep(0.5)


@pytest.fixture
async def engine() -> AsyncIterator[MockEngine]:
    engine = MockEngine(SCRIPT, context_length=4 * TOKENS)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_ME_01_clients_that_do_not_read(tls, transport, engine, tmp_path):
    await with_gateway(tls, transport, engine, tmp_path, clients=2, idle=0)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_ME_01_50_clients_that_do_not_read_for_60_s(tls, transport, engine, tmp_path):
    await with_gateway(tls, transport, engine, tmp_path, clients=50, idle=60)


async def with_gateway(
    tls: bool, transport: str, engine: MockEngine, tmp_path: Path, *, clients: int, idle: float
) -> None:
    flags = ["--engine-transport", transport]
    if tls:
        files = self_signed(tmp_path)
        flags += ["--tls-cert-path", files["tls_cert_path"], "--tls-key-path", files["tls_key_path"]]
    configured = settings(tmp_path / "state", "--worker-urls", engine.url, *flags)
    manager = running(configured)
    gateway = await asyncio.to_thread(manager.__enter__)
    try:
        await check(gateway, engine, clients, idle)
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def check(gateway: Gateway, engine: MockEngine, clients: int, idle: float) -> None:
    # One whole answer first, so that only the waiting ones are measured.
    reader, writer = await connect(gateway)
    assert await read_all(reader) == TOKENS
    writer.close()
    worker = gateway.child("worker-1")
    before = rss(worker)

    connections = [await connect(gateway) for _ in range(clients)]
    await asyncio.sleep(idle)
    sent = (await settled(engine))[1:]
    assert len(sent) == clients
    assert max(sent) < TOKENS, "every engine call is paused"
    assert rss(worker) - before < clients * HELD_PER_STREAM + NOISE

    for _, writer in connections[::2]:
        writer.transport.abort()
    counts = await asyncio.gather(*(read_all(reader) for reader, _ in connections[1::2]))
    assert counts == [TOKENS] * (clients // 2)
    for _, writer in connections[1::2]:
        writer.close()
    async with asyncio.timeout(5):
        while engine.running or len(engine.aborted) < clients // 2:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.05)
    assert [entry.state == "done" for entry in engine.requests[1:]] == [False, True] * (clients // 2)
    assert sorted(engine.aborted) == sorted(entry.id for entry in engine.requests[1::2])
    assert await asyncio.to_thread(gateway.metric, "smg_requests_inflight") == 0
