"""Signs of life of native connections, against a scripted peer (spec engine-contract 4.2)."""

import asyncio

from smg.engines.transport.h2_connection import Timing
from tests import h2_peer as h2
from tests.calls import failure, read_all

PATH = "/t.T/Stream"


async def test_too_many_pings_make_us_calmer(connect_native):
    async def script(session):
        await session.greet()
        await session.request()
        session.send(h2.goaway(1, 11, b"too_many_pings"), h2.answer(1, b"yes"))
        await session.gone()

    async with h2.serve_raw(script) as address:
        transport = connect_native(address, keepalive=20.0)
        assert await read_all(transport.stream(PATH, b"", None)) == [b"yes"]
        assert transport._timing.keepalive == 40.0


def test_calmness_has_an_end():
    timing = Timing()
    for _ in range(10):
        timing = timing.calmer()
    assert timing.keepalive == timing.patience == 310


async def test_pings_without_anything_else_become_rarer(connect_native):
    """grpcio's servers, Go's and Java's count them: by default three in less than five minutes end a connection."""
    loop, silences = asyncio.get_running_loop(), []

    async def script(session):
        await session.greet()
        stream = (await session.request()).stream
        session.send(h2.headers(stream))
        for messages in (0, 0, 0, 2, 0):
            since = loop.time()
            # Twice, so that one of them is not taken for what came with the answer.
            for _ in range(messages):
                session.send(h2.data(stream, h2.message(b"x")))
                await asyncio.sleep(0.02)
            ping = await session.until(h2.PING)
            silences.append(loop.time() - since)
            session.send(h2.frame(h2.PING, h2.ACK, payload=ping.payload))
        session.send(h2.trailers(stream))
        await session.gone()

    async with h2.serve_raw(script) as address:
        call = connect_native(address, keepalive=0.05, answer=0.02, patience=10.0).stream(PATH, b"", None)
        assert await read_all(call) == [b"x"] * 2
    assert silences[1] > 0.18
    assert silences[2] > 0.75
    # They become frequent again once there was something else: the next pause would have been 3.2 seconds.
    assert silences[3] < 2
    assert silences[4] > 0.18


async def test_without_calls_nobody_is_pinged(connect_native):
    async def script(session):
        await h2.answering(session)

    pings = 0

    async def counting(session):
        nonlocal pings
        try:
            await script(session)
        finally:
            pings += len([frame for frame in session.seen if frame.kind == h2.PING])

    async with h2.serve_raw(counting) as address:
        transport = connect_native(address, keepalive=0.02, answer=0.02)
        for _ in range(2):
            assert await read_all(transport.stream(PATH, b"x", None)) == [b"x"]
            await asyncio.sleep(0.15)
        assert transport.connected
        await transport.close()
    assert pings == 0


async def test_silence_is_asked_about_and_then_ended(connect_native):
    pings = []
    async with h2.serve_raw(h2.answering_pings(2, pings)) as address:
        call = connect_native(address, keepalive=0.05, answer=0.1).stream(PATH, b"", None)
        error = await failure(call)
    assert (error.rpc, len(pings)) == ("UNAVAILABLE", 2)
    assert "pings" in error.detail


async def test_data_is_a_sign_of_life(connect_native):
    async def script(session):
        await session.greet()
        stream = (await session.request()).stream
        session.send(h2.headers(stream))
        for _ in range(10):
            await asyncio.sleep(0.02)
            session.send(h2.data(stream, h2.message(b"x")))
        session.send(h2.trailers(stream))
        await session.gone()
        assert not [frame for frame in session.seen if frame.kind == h2.PING]

    async with h2.serve_raw(script) as address:
        call = connect_native(address, keepalive=0.15, answer=0.01).stream(PATH, b"", None)
        assert await read_all(call) == [b"x"] * 10
