"""A request leaves nothing for the garbage collector: it rarely comes by, and over TLS each connection is 30 kB."""

import gc

import pytest

from smg.api.sink import ResponseSink
from smg.api.stream import Stream
from smg.core.request import GenerationRequest
from smg.engine_server.mock import Script
from smg.engines.source import GrpcSource
from smg.pipeline.generation import Generation
from smg.pipeline.interrupt import Interrupt
from smg.server.protocol import Connection, GatewayHttp
from tests.api.conftest import idle, say
from tests.api.serving import send, until

OURS = (
    *(Connection, GatewayHttp, Stream, ResponseSink),
    *(GenerationRequest, Generation, Interrupt, GrpcSource),
)


@pytest.fixture
def uncollected():
    """Nobody collects garbage; tells what of a request is there that was not there before."""
    gc.collect()
    before = {id(found) for found in ours()}
    gc.disable()
    yield lambda: [found for found in ours() if id(found) not in before]
    gc.enable()


def ours():
    # Asked by type: ``isinstance`` would ask others' weak proxies, whose objects may have gone.
    return [found for found in gc.get_objects() if issubclass(type(found), OURS)]


@pytest.mark.parametrize("engine_transport", ["grpcio", "native"])
@pytest.mark.parametrize(("stream", "whole"), [(True, True), (True, False), (False, True), (False, False)])
async def test_all_of_a_request_is_gone_with_its_connection(url, gateway, engines, uncollected, stream, whole):
    say(engines, Script.text("come and see the world " * 8, chunk_delay=0.002 if whole else 0.05))
    body = {"model": "mock", "messages": [{"role": "user", "content": "hi"}], "stream": stream, "max_tokens": 100}
    for _ in range(3):
        reader, writer = await send(url, body)
        if whole:
            await reader.readuntil(b"[DONE]" if stream else b'"usage"')
        elif stream:
            await reader.readuntil(b"come")
        else:
            await until(lambda: any(engine.running for engine in engines))
        writer.transport.abort()
    await idle(gateway, engines)
    await until(lambda: not uncollected())
