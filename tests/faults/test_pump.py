"""The pump (native transport, rows fed without Python) against its twin over grpcio: the same bytes, come what may."""

import asyncio
import json
import os
import random
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STREAMS = 64
TOKENS = 300
THINKING = "qwen3-mock"


@pytest.fixture(scope="module")
def gateways(tmp_path_factory) -> Iterator[tuple[Gateway, Gateway]]:
    """The same two engines behind a gateway with the pump and one without: (native, grpcio)."""
    words = " ".join(f"word{number}é" for number in range(TOKENS))
    thought = "<think>" + words[:400] + "</think>" + words[400:800]
    state = tmp_path_factory.mktemp("state")
    with (
        mock_process("--text", words, "--delay-token-ms", "1") as plain,
        mock_process("--model", THINKING, "--text", thought) as thinking,
    ):
        urls = f"grpc://{plain},grpc://{thinking}"
        both = (
            running(settings(state / name, "--worker-urls", urls, "--engine-transport", name))
            for name in ("native", "grpcio")
        )
        native, grpcio = both
        with native as first, grpcio as second:
            yield first, second


def normal(answer: bytes) -> bytes:
    """An answer without what is of the moment: ids and times."""
    return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b'"\\1":0', answer)


async def ask(client: httpx.AsyncClient, gateway: Gateway, path: str = "chat/completions", **extra: object) -> bytes:
    options = {"model": "mock-model", "max_tokens": TOKENS, "stream": True} | extra
    answer = await client.post(f"{gateway.url}/v1/{path}", content=body(**options))
    assert answer.status_code == 200, answer.text
    return normal(answer.content)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=200)) as client:
        yield client


def idle(gateway: Gateway) -> bool:
    return gateway.metric("smg_requests_inflight") == 0 and gateway.metric("smg_worker_requests_active") == 0


CASES = {
    "plain": {},
    "usage": {"stream_options": {"include_usage": True}},
    "stop-string": {"stop": ["word41é wo", "never"]},
    "stop-string-shown": {"stop": ["word41é wo"], "include_stop_str_in_output": True},
    "cut-by-length": {"max_tokens": 17},
    "several-choices": {"n": 3},
    "logprobs": {"logprobs": True, "top_logprobs": 2, "max_tokens": 20},
    "thinking": {"model": THINKING},
    "completion": {"path": "completions", "messages": None, "prompt": "Tell me"},
    "two-prompts": {"path": "completions", "messages": None, "prompt": ["Tell me", "Ask me"]},
}


TAPPED = ("logprobs", "thinking")


def folded(answer: bytes) -> dict[str, object]:
    """What a streamed chat answer says, however it was cut into events."""
    *events, end = [line.removeprefix(b"data: ") for line in answer.split(b"\n\n") if line]
    assert end == b"[DONE]"
    said: dict[str, object] = {"content": "", "reasoning_content": "", "finish": [], "logprobs": []}
    for event in events:
        [choice] = json.loads(event)["choices"]
        for part in ("content", "reasoning_content"):
            said[part] += choice["delta"].get(part) or ""
        said["finish"] += [choice["finish_reason"]] if choice["finish_reason"] else []
        said["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
    return said


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "buffered"])
@pytest.mark.parametrize("case", CASES)
async def test_answers_are_those_of_the_twin_byte_for_byte(case, stream, gateways, client):
    extra = dict(CASES[case], stream=stream)
    if not stream:
        extra.pop("stream_options", None)
    pumped, plain = [await ask(client, gateway, **extra) for gateway in gateways]
    if stream and case in TAPPED:
        # These rows have one event per pull, so only what they say is the same.
        pumped, plain = folded(pumped), folded(plain)
    elif stream and case in ("several-choices", "two-prompts"):
        # How choices take turns is the engine's affair; each by itself is the same.
        pumped, plain = (b"\n\n".join(sorted(text.split(b"\n\n"))) for text in (pumped, plain))
    assert pumped == plain
    assert "word" in str(pumped)


async def read_some(client: httpx.AsyncClient, gateway: Gateway, events: int) -> bytes:
    """Read a stream to its end, or leave after some events; returns what came."""
    options = {"model": "mock-model", "max_tokens": TOKENS, "stream": True}
    seen = b""
    async with client.stream("POST", f"{gateway.url}/v1/chat/completions", content=body(**options)) as answer:
        async for piece in answer.aiter_raw():
            seen += piece
            if seen.count(b"\n\n") >= events:
                break
    return normal(seen)


async def stalled_reader(gateway: Gateway) -> socket.socket:
    """A client that asks and reads nothing, with little room in its socket."""
    host, port = gateway.url.split("//")[1].split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (host, int(port)))
    data = body(model="mock-model", max_tokens=TOKENS, stream=True)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {len(data)}\r\n\r\n"
    await loop.sock_sendall(connection, head.encode() + data)
    return connection


async def read_chunked(connection: socket.socket) -> bytes:
    """Read a chunked answer to its end and take the framing off, strictly."""
    loop = asyncio.get_running_loop()
    raw = b""
    while not raw.endswith(b"\r\n0\r\n\r\n"):
        piece = await loop.sock_recv(connection, 1 << 16)
        assert piece, "the answer was cut"
        raw += piece
    text, rest = unchunked(raw.split(b"\r\n\r\n", 1)[1])
    assert not rest
    return normal(text)


def unchunked(rest: bytes) -> tuple[bytes, bytes]:
    """A chunked body without its framing, which is read strictly, and what comes after it."""
    text = b""
    while True:
        size, rest = rest.split(b"\r\n", 1)
        count = int(size, 16)
        text, end, rest = text + rest[:count], rest[count : count + 2], rest[count + 2 :]
        assert end == b"\r\n", "a chunk of a wrong size"
        if count == 0:
            return text, rest


def rss(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


async def test_disconnects_and_a_stalled_reader_hurt_nobody_else_and_leave_nothing(gateways, client):
    gateway, twin = gateways
    draw = random.Random(7)
    whole = await ask(client, twin)
    worker = gateway.child("worker-1")
    sizes, descriptors = [], []
    for _ in range(5):
        stalled = await stalled_reader(gateway)
        wanted = [draw.choice([1, 5, 40, 10_000, 10_000]) for _ in range(STREAMS)]
        answers = await asyncio.gather(*(read_some(client, gateway, events) for events in wanted))
        for events, answer in zip(wanted, answers, strict=True):
            assert whole.startswith(answer)
            assert answer == whole or events < 10_000
        # Nothing of the stalled one's answer is lost either, once it reads.
        assert await read_chunked(stalled) == whole
        stalled.close()
        await asyncio.to_thread(wait_for, lambda: idle(gateway), 10, "idle after a round")
        sizes.append(rss(worker))
        descriptors.append(len(os.listdir(f"/proc/{worker}/fd")))
    assert sizes[-1] - sizes[1] < 4 << 20, sizes
    assert descriptors[-1] <= descriptors[1] + 2, descriptors


def asking(data: bytes, *fields: bytes) -> bytes:
    lines = [b"POST /v1/chat/completions HTTP/1.1", b"host: h", b"content-length: %d" % len(data), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + data


def bodies(raw: bytes) -> Iterator[bytes]:
    """The bodies of the answers on one connection, one right behind the other."""
    while raw:
        head, raw = raw.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
        length = re.search(rb"content-length: (\d+)", head)
        if length is None:
            text, raw = unchunked(raw)
        else:
            text, raw = raw[: int(length[1])], raw[int(length[1]) :]
        yield normal(text)


@pytest.mark.parametrize("which", [0, 1], ids=["native", "grpcio"])
async def test_what_is_asked_while_a_stream_is_written_is_answered_after_it_in_order_and_whole(which, gateways, client):
    gateway = gateways[which]
    stream, buffered = ({"model": "mock-model", "max_tokens": TOKENS, "stream": value} for value in (True, False))
    first, second = [await ask(client, gateway, **extra) for extra in (stream, buffered)]
    host, port = gateway.url.split("//")[1].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(asking(body(**stream)))
    seen = await reader.readuntil(b"\n\n")
    # The stream is being written: half a request comes, and in the middle of the stream its rest and more.
    more = asking(body(**buffered))
    writer.write(more[:100])
    while seen.count(b"\n\n") < 50:
        seen += await reader.readuntil(b"\n\n")
    writer.write(more[100:] + b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n")
    writer.write(asking(body(**stream), b"connection: close"))
    answers = list(bodies(seen + await reader.read()))
    writer.close()
    assert answers == [first, second, b"OK", first]
    await asyncio.to_thread(wait_for, lambda: idle(gateway), 10, "idle after pipelined requests")
