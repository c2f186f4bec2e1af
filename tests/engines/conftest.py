"""Requests, drivers against mock engines, and a bare gRPC server that answers exactly what a test says."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from smg.core.backends import EngineRequest
from smg.core.context import RequestContext
from smg.core.request import Limits, Sampling
from smg.engines.driver import GrpcDriver
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.transport.h2_connection import Timing
from smg.engines.vllm.adapter import VllmAdapter
from tests._native.test_stream_feed import Pipe


@asynccontextmanager
async def serve(service: str, address: str = "127.0.0.1:0", **handlers) -> AsyncIterator[str]:
    """Serve byte handlers: ``Stream`` in the name of an async generator's RPC makes it streaming."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
    methods = {
        name: grpc.unary_stream_rpc_method_handler(handler)
        if hasattr(handler, "__code__") and handler.__code__.co_flags & 0x200
        else grpc.unary_unary_rpc_method_handler(handler)
        for name, handler in handlers.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - engines in tests have no event for it
            await asyncio.sleep(0.01)


def engine_request(**changes) -> EngineRequest:
    fields = {
        "id": "req-1",
        "ids": [1, 2, 3],
        "sampling": Sampling(),
        "limits": Limits(max_tokens=64),
    }
    return EngineRequest(**(fields | changes))


async def drain(source) -> list:
    batches = []
    while fresh := await source.next():
        batches += fresh
    return batches


@pytest.fixture
def ctx() -> RequestContext:
    return RequestContext(request_id="req")


@pytest.fixture
def transport():
    """The transport under test; modules that test all transports override it."""
    return GrpcioTransport


@pytest.fixture
def kit(transport):
    """The helpers above, for test modules (which cannot import a conftest)."""

    @asynccontextmanager
    async def driver_to(url: str) -> AsyncIterator[GrpcDriver]:
        driver = GrpcDriver(url, VllmAdapter(), transport(url))
        try:
            yield driver
        finally:
            await driver.close()

    class Kit:
        serve = staticmethod(serve)
        driver = staticmethod(driver_to)
        request = staticmethod(engine_request)
        eventually: Callable[..., Awaitable[None]] = staticmethod(eventually)
        drain = staticmethod(drain)

    return Kit


@pytest.fixture
async def connect_native():
    """Native transports to raw addresses; keywords are those of ``Timing``."""
    opened = []

    def make(url, **timing):
        opened.append(H2Transport(url, timing=Timing(**timing)))
        return opened[-1]

    yield make
    for transport in opened:
        await transport.close()


@pytest.fixture
def narrow():
    """A client whose socket is soon full."""
    pipe = Pipe()
    yield pipe
    pipe.ours.close()
    pipe.peer.close()


@pytest.fixture
def pipe(narrow):
    """A client whose socket has room for all that these tests send."""
    narrow.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return narrow
