"""Every transport against every gRPC server there is: grpcio's two, and the C++ library's (DESIGN 6, conformance)."""

import asyncio
import contextlib

import pytest

from smg.core.errors import GatewayError
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport
from tests.calls import failure, read_all
from tests.engines.servers import NAMES, serving

MIB = 1 << 20


@pytest.fixture(params=[GrpcioTransport, H2Transport], ids=["grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture(params=NAMES)
def server(request):
    return request.param


@contextlib.asynccontextmanager
async def connected(transport, server, age=0):
    async with serving(server, age) as address:
        made = transport(address)
        try:
            yield made
        finally:
            await made.close()


async def tally(made):
    [counts] = await read_all(made.stream("/t.T/Tally", b"?", 5))
    sent, cancelled = map(int, counts.split())
    return {"sent": sent, "cancelled": cancelled}


async def eventually(made, name, count):
    async with asyncio.timeout(5):
        while (await tally(made))[name] < count:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.02)


async def test_messages_beyond_4_mib_both_ways(transport, server):
    big = bytes(range(256)) * (6 * MIB // 256)
    async with connected(transport, server) as made:
        assert await read_all(made.stream("/t.T/Echo", big, 20)) == [big]


async def test_many_messages_of_every_size_at_once(transport, server):
    async with connected(transport, server) as made:
        sizes = [1, 100, 16_379, 16_384, 70_000, 300_000]
        calls = [made.stream("/t.T/Flood", b"30 %d" % size, 20) for size in sizes]
        for size, got in zip(sizes, await asyncio.gather(*map(read_all, calls)), strict=True):
            assert [len(message) for message in got] == [size] * 30


async def test_a_slow_reader_stops_its_stream_and_no_other(transport, server):
    async with connected(transport, server) as made:
        slow = made.stream("/t.T/Flood", b"400 16384", 60)
        await eventually(made, "sent", 10)
        await asyncio.sleep(0.2)
        # What was read ahead, one window, and what a server takes over itself: far from the 6 MiB on offer.
        assert (await tally(made))["sent"] < 150
        assert len(await read_all(made.stream("/t.T/Flood", b"100 16384", 20))) == 100
        assert len(await read_all(slow)) == 400


async def test_a_status_with_and_without_messages(transport, server):
    async with connected(transport, server) as made:
        call = made.stream("/t.T/Break", b"", 5)
        assert await call.read() == [b"one"]
        error = await failure(call)
        assert (error.code, error.rpc) == ("worker_stream_failed", "INTERNAL")
        assert (await failure(made.stream("/t.T/Refuse", b"", 5))).status == 429
        # A long request may still be on its way when it is refused.
        assert (await failure(made.stream("/t.T/Refuse", bytes(8 * MIB), 5))).status == 429
        assert (await failure(made.stream("/t.T/Nothing", b"", 5))).status == 501
        assert await read_all(made.stream("/t.T/Echo", b"and on", 5)) == [b"and on"]


async def test_cancelling_reaches_the_server(transport, server):
    async with connected(transport, server) as made:
        calls = [made.stream("/t.T/Stall", b"", None) for _ in range(20)]
        for call in calls:
            assert await call.read() == [b"one"]
        for call in calls:
            call.cancel()
        await eventually(made, "cancelled", 20)
        assert (await failure(made.stream("/t.T/Stall", b"", 0.2))).code == "upstream_timeout"


async def test_connections_that_grow_old_lose_nothing(transport, server):
    """The server says GOAWAY to every connection after 300 ms, with streams in flight on it."""
    async with connected(transport, server, age=300) as made:

        async def ticking(number):
            await asyncio.sleep(number * 0.05)
            return await read_all(made.stream("/t.T/Tick", b"20 30", 20))

        async def asking():
            refused = 0
            for number in range(60):
                try:
                    assert await read_all(made.stream("/t.T/Echo", b"%d" % number, 5)) == [b"%d" % number]
                except GatewayError as error:
                    # Sent in the moment the connection went: not processed, so others may be asked.
                    assert (error.status, error.retryable) == (503, True)
                    refused += 1
                await asyncio.sleep(0.02)
            return refused

        *streams, refused = await asyncio.gather(*map(ticking, range(10)), asking())
    assert streams == [[b"x"] * 20] * 10
    assert refused <= 2
