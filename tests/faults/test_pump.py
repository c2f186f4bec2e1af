"""The pump (rows fed without Python) over both transports that have it, against its twin: the same, come what may.

The twin is ``--engine-transport python``: messages are read by the generated contract, and rows are Python's.
"""

import asyncio
import contextlib
import os
import random
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import frames
from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STREAMS = 30
TOKENS = 200
PLAIN, THINKING = "mock-model", "qwen3-mock"
PUMPED, TWIN = ("native", "grpcio"), "python"
WORDS = " ".join(f"word{number}é" for number in range(TOKENS))
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "the \\n\\"%s\\" é", "far": [1, true]}}\n</tool_call>'
# Reasoning, text and calls by turns, with what may have been a marker in each.
TURNS = f"<think>\nhm <word> é\n</think>\n\nas < it {CALL % 'sea'}\n then < we {CALL % 'sky'}\n{CALL % '<'} made it"


@pytest.fixture(scope="module")
def gateways(tmp_path_factory) -> Iterator[dict[str, Gateway]]:
    """The same two engines behind a gateway of each transport."""
    state = tmp_path_factory.mktemp("state")
    pace = ("--delay-token-ms", "1")
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(mock_process("--text", WORDS, *pace))
        thinking = stack.enter_context(mock_process("--model", THINKING, "--text", TURNS, *pace))
        flags = ("--worker-urls", f"grpc://{plain},grpc://{thinking}", "--signing-key", "one for all")
        yield {
            name: stack.enter_context(running(settings(state / name, *flags, "--engine-transport", name)))
            for name in (*PUMPED, TWIN)
        }


def normal(answer: bytes) -> bytes:
    """An answer without what is of the moment: ids and times."""
    return re.sub(rb'"(id|item_id|call_id|created|created_at|completed_at)":("[^"]*"|\d+)', b'"\\1":0', answer)


async def ask(client: httpx.AsyncClient, gateway: Gateway, path: str = "chat/completions", **extra: object) -> bytes:
    options = {"model": PLAIN, "max_tokens": TOKENS, "stream": True} | extra
    answer = await client.post(f"{gateway.url}/v1/{path}", content=body(**options))
    assert answer.status_code == 200, answer.text
    return normal(answer.content)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=200)) as client:
        yield client


def idle(gateway: Gateway) -> bool:
    return gateway.metric("smg_requests_inflight") == 0 and gateway.metric("smg_worker_requests_active") == 0


SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
CHAT_TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
COMPLETION: dict[str, Any] = {"path": "completions", "messages": None}
RESPONSE: dict[str, Any] = {"path": "responses", "messages": None, "max_tokens": None, "input": "Tell me"}
MESSAGE: dict[str, Any] = {"path": "messages"}
TURNED: dict[str, Any] = {"model": THINKING, "max_tokens": 4000}
TURNED_RESPONSE: dict[str, Any] = RESPONSE | {"model": THINKING}
CASES: dict[str, dict[str, Any]] = {
    "chat": {},
    "chat-usage": {"stream_options": {"include_usage": True}},
    "chat-stop": {"stop": ["word21é wo", "never"]},
    "chat-stop-shown": {"stop": ["word21é wo"], "include_stop_str_in_output": True},
    "chat-length": {"max_tokens": 17},
    "chat-choices": {"n": 3},
    "chat-logprobs": {"logprobs": True, "top_logprobs": 2, "max_tokens": 20},
    "chat-thinking": TURNED,
    "chat-tools": TURNED | {"tools": CHAT_TOOLS},
    "completion": COMPLETION | {"prompt": "Tell me"},
    "two-prompts": COMPLETION | {"prompt": ["Tell me", "Ask me"]},
    "response": RESPONSE,
    "response-stop": RESPONSE | {"stop": ["word21é wo", "never"]},
    "response-length": RESPONSE | {"max_output_tokens": 17},
    "response-thinking": TURNED_RESPONSE,
    "response-tools": TURNED_RESPONSE | {"tools": [{"type": "function", "name": "look", "parameters": SCHEMA}]},
    "message": MESSAGE,
    "message-stop": MESSAGE | {"stop_sequences": ["word21é wo", "never"]},
    "message-thinking": MESSAGE | TURNED | {"thinking": {"type": "enabled", "budget_tokens": 2000}},
    "message-tools": MESSAGE | TURNED | {"tools": [{"name": "look", "input_schema": SCHEMA}]},
}
# Fields of events that grow from one to the next.
GROWING = {"content", "reasoning_content", "arguments", "text", "thinking", "partial_json", "delta"}


def apart(value: Any, path: tuple, growing: dict[tuple, Any]) -> Any:
    """``value`` without what grows, which goes to ``growing``."""
    if isinstance(value, list):
        return [apart(item, (*path, place), growing) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    left = {}
    for name, inner in value.items():
        if (name in GROWING and isinstance(inner, str)) or (*path[-1:], name) == ("logprobs", "content"):
            growing[*path, name] = inner
        else:
            left[name] = apart(inner, (*path, name), growing)
    return left


def said(answer: bytes) -> list[Any]:
    """The events of a stream, those put together that go on with the same text; their numbers have no gap.

    While a parser works there is one event per pull, so that their cuts are those of the engine's time.
    """
    events: list[tuple[Any, dict[tuple, Any]]] = []
    for number, frame in enumerate(frame for frame in frames(answer) if not isinstance(frame, str)):
        value = frame[1] if isinstance(frame, tuple) else frame
        assert value.pop("sequence_number", number) == number
        growing: dict[tuple, Any] = {}
        left = apart(value, (), growing)
        if events and events[-1][0] == left and any(growing.values()) and events[-1][1].keys() == growing.keys():
            growing = {path: events[-1][1][path] + more for path, more in growing.items()}
            events.pop()
        events.append((left, growing))
    return events


@pytest.mark.parametrize("case", CASES)
async def test_streams_are_those_of_the_twin_byte_for_byte(case, gateways, client):
    answers = await asyncio.gather(*(ask(client, gateway, **CASES[case]) for gateway in gateways.values()))
    *pumped, twin = answers
    if case.endswith(("logprobs", "thinking", "tools")):
        assert [said(answer) for answer in pumped] == [said(twin)] * 2
    elif case in ("chat-choices", "two-prompts"):
        # How choices take turns is the engine's affair; each by itself is the same.
        assert [sorted(answer.split(b"\n\n")) for answer in pumped] == [sorted(twin.split(b"\n\n"))] * 2
    else:
        assert pumped == [twin] * 2
    assert "é".encode() in twin
    assert not case.endswith("tools") or twin.count(b'"name":"look"') >= 3


@pytest.mark.parametrize("case", ["chat", "chat-choices", "chat-logprobs", "two-prompts", "response-tools", "message"])
async def test_buffered_answers_are_those_of_the_twin(case, gateways, client):
    fields = CASES[case] | {"stream": False}
    *pumped, twin = await asyncio.gather(*(ask(client, gateway, **fields) for gateway in gateways.values()))
    assert pumped == [twin] * 2
    assert "é".encode() in twin


async def read_some(client: httpx.AsyncClient, gateway: Gateway, fields: dict[str, Any], events: int) -> bytes:
    """Read a stream to its end, or leave after some events; returns what came."""
    options = {"model": PLAIN, "max_tokens": TOKENS, "stream": True} | fields
    path, seen = options.pop("path", "chat/completions"), b""
    async with client.stream("POST", f"{gateway.url}/v1/{path}", content=body(**options)) as answer:
        async for piece in answer.aiter_raw():
            seen += piece
            if seen.count(b"\n\n") >= events:
                break
    return normal(seen)


async def stalled_reader(gateway: Gateway, fields: dict[str, Any]) -> socket.socket:
    """A client that asks and reads nothing, with little room in its socket."""
    host, port = gateway.url.split("//")[1].split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (host, int(port)))
    options = {"model": PLAIN, "max_tokens": TOKENS, "stream": True} | fields
    path = options.pop("path", "chat/completions")
    data = body(**options)
    head = f"POST /v1/{path} HTTP/1.1\r\nhost: h\r\ncontent-length: {len(data)}\r\n\r\n"
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


@pytest.mark.parametrize("transport", PUMPED)
async def test_disconnects_and_stalled_readers_hurt_nobody_else_and_leave_nothing(transport, gateways, client):
    gateway, draw = gateways[transport], random.Random(7)
    kinds: list[dict[str, Any]] = [{}, RESPONSE, MESSAGE]
    wholes = [await ask(client, gateways[TWIN], **fields) for fields in kinds]
    worker = gateway.child("worker-1")
    sizes, descriptors = [], []
    for _ in range(3):
        stalled = [await stalled_reader(gateway, fields) for fields in kinds]
        wanted = [(draw.randrange(len(kinds)), draw.choice([1, 5, 40, 10_000, 10_000])) for _ in range(STREAMS)]
        answers = await asyncio.gather(*(read_some(client, gateway, kinds[kind], events) for kind, events in wanted))
        for (kind, events), answer in zip(wanted, answers, strict=True):
            assert wholes[kind].startswith(answer)
            assert answer == wholes[kind] or events < 10_000
        # Nothing of the stalled ones' answers is lost either, once they read.
        for connection, whole in zip(stalled, wholes, strict=True):
            assert await read_chunked(connection) == whole
            connection.close()
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


@pytest.mark.parametrize("which", ["native", "grpcio"])
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
