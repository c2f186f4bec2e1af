"""gRPC servers that other people wrote, each with the same methods of bytes, for conformance tests.

``/t.T/…``, all server-streaming: ``Echo`` answers with what it is asked; ``Flood`` (``b"COUNT SIZE"``) with that many
messages, as fast as they are taken; ``Tick`` (``b"COUNT MS"``) with small ones, so many milliseconds apart; ``Stall``
with one, and then nothing; ``Break`` with one and INTERNAL; ``Refuse`` with RESOURCE_EXHAUSTED and no more; ``Tally``
with how many messages of floods have been sent and how many calls were cancelled.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio
import pytest

NAMES = ("aio", "sync", "cpp")


@contextlib.asynccontextmanager
async def serving(name: str, age: int = 0) -> AsyncIterator[str]:
    """Run the server ``name``; yields ``host:port``. ``age`` (ms) is when a connection gets GOAWAY, 0 for never."""
    async with {"aio": _aio, "sync": _sync, "cpp": _cpp}[name](age) as port:
        yield f"127.0.0.1:{port}"


def _options(age: int) -> list[tuple[str, int]]:
    options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
    return options + ([("grpc.max_connection_age_ms", age)] if age else [])


@contextlib.asynccontextmanager
async def _aio(age: int) -> AsyncIterator[int]:
    sent = cancelled = 0

    async def Echo(request, context):
        yield request

    async def Flood(request, context):
        nonlocal sent
        count, size = map(int, request.split())
        for _ in range(count):
            yield b"x" * size
            sent += 1

    async def Tick(request, context):
        count, pause = map(int, request.split())
        for _ in range(count):
            yield b"x"
            await asyncio.sleep(pause / 1000)

    async def Stall(request, context):
        nonlocal cancelled
        try:
            yield b"one"
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async def Break(request, context):
        yield b"one"
        await context.abort(grpc.StatusCode.INTERNAL, "broken")

    async def Refuse(request, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        yield b""

    async def Tally(request, context):
        yield b"%d %d" % (sent, cancelled)

    server = grpc.aio.server(options=_options(age))
    _register(server, Echo, Flood, Tick, Stall, Break, Refuse, Tally)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def _sync(age: int) -> AsyncIterator[int]:
    """grpcio's server with threads, which waits for windows in another way."""
    lock = threading.Lock()
    counts = {"sent": 0, "cancelled": 0}

    def count(name):
        with lock:
            counts[name] += 1

    def Echo(request, context):
        yield request

    def Flood(request, context):
        number, size = map(int, request.split())
        for _ in range(number):
            yield b"x" * size
            count("sent")

    def Tick(request, context):
        number, pause = map(int, request.split())
        for _ in range(number):
            yield b"x"
            time.sleep(pause / 1000)

    def Stall(request, context):
        over = threading.Event()

        def ended():
            # Not behind the wait: who is cancelled just after its message is never gone on with.
            count("cancelled")
            over.set()

        context.add_callback(ended)
        yield b"one"
        over.wait(30)

    def Break(request, context):
        yield b"one"
        context.abort(grpc.StatusCode.INTERNAL, "broken")

    def Refuse(request, context):
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        yield b""

    def Tally(request, context):
        yield b"%d %d" % (counts["sent"], counts["cancelled"])

    server = grpc.server(ThreadPoolExecutor(40), options=_options(age))
    _register(server, Echo, Flood, Tick, Stall, Break, Refuse, Tally)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        await asyncio.to_thread(server.stop(None).wait)


@contextlib.asynccontextmanager
async def _cpp(age: int) -> AsyncIterator[int]:
    """The program that ``SMG_CPP_ENGINE`` names, built from ``peer.cpp``."""
    program = os.environ.get("SMG_CPP_ENGINE")
    if not program:
        pytest.skip("SMG_CPP_ENGINE does not name a server built from tests/engines/servers/peer.cpp")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, str(age), stdin=pipe, stdout=pipe)
    try:
        yield int(await process.stdout.readline())
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


def _register(server, *handlers):
    methods = {handler.__name__: grpc.unary_stream_rpc_method_handler(handler) for handler in handlers}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", methods),))
