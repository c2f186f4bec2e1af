"""Calls that are turned away before anybody has looked at them (RFC 9113, 8.7) are asked again.

That is no attempt of the gateway's, and no worker's failure.
"""

import asyncio

import pytest

from tests import h2_peer as h2
from tests.calls import failure, read_all

PATH = "/t.T/Stream"


async def test_a_proxy_that_takes_so_many_requests_for_each_connection(connect_native):
    """As nginx does (keepalive_requests): the answer goes on, whatever comes behind the last request is dropped."""
    sessions = []

    async def script(session):
        sessions.append(session)
        await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 24})
        session.send(h2.window(0, 1 << 24))
        taken = [await session.request() for _ in range(3)]
        session.send(h2.goaway(taken[-1].stream))
        for request in taken:
            session.send(h2.answer(request.stream, request.body[5:]))
        await session.gone()

    async with h2.serve_raw(script) as address:
        transport = connect_native(address)
        calls = [transport.stream(PATH, b"%d" % number, None) for number in range(10)]
        calls += [transport.stream(PATH, bytes(1 << 20), None) for _ in range(2)]
        got = await asyncio.gather(*map(read_all, calls))
        assert got == [[b"%d" % number] for number in range(10)] + [[bytes(1 << 20)]] * 2
        assert len(sessions) == 4


async def test_an_answer_that_has_begun_is_never_asked_for_again(connect_native):
    sessions = []

    async def script(session):
        sessions.append(session)
        await session.greet()
        stream = (await session.request()).stream
        session.send(h2.headers(stream), h2.goaway(0))
        await session.gone()

    async with h2.serve_raw(script) as address:
        assert (await failure(connect_native(address).stream(PATH, b"", None))).rpc == "UNAVAILABLE"
        assert len(sessions) == 1


@pytest.mark.parametrize(
    "turning_away",
    [
        lambda stream: h2.goaway(0),
        lambda stream: h2.reset(stream, 7),
    ],
    ids=["goaway", "refused"],
)
async def test_who_turns_everything_away_is_asked_twice(connect_native, turning_away):
    asked = 0

    async def script(session):
        nonlocal asked
        await session.greet()
        while True:
            stream = (await session.request()).stream
            asked += 1
            session.send(turning_away(stream))

    async with h2.serve_raw(script) as address:
        error = await failure(connect_native(address).stream(PATH, b"", None))
        assert (error.rpc, error.retryable, error.worker_fault) == ("UNAVAILABLE", True, True)
        assert asked == 2


async def test_who_refuses_one_stream_of_many_is_asked_for_it_again(connect_native):
    async def script(session):
        await session.greet()
        first, second = await session.request(), await session.request()
        session.send(h2.reset(first.stream, 7), h2.answer(second.stream, second.body[5:]))
        await h2.answering_more(session)

    async with h2.serve_raw(script) as address:
        transport = connect_native(address)
        calls = [transport.stream(PATH, b"%d" % number, None) for number in range(2)]
        assert await asyncio.gather(*map(read_all, calls)) == [[b"0"], [b"1"]]
        assert len(transport._connections) == 1


async def test_who_goes_away_as_soon_as_it_has_greeted_is_not_asked_forever(connect_native):
    sessions = []

    async def script(session):
        sessions.append(session)
        assert await session.reader.readexactly(len(h2.PREFACE)) == h2.PREFACE
        session.send(h2.settings() + h2.goaway(0x7FFFFFFF, 0, b"graceful"))
        await session.gone()

    async with h2.serve_raw(script) as address:
        transport = connect_native(address)
        calls = [transport.stream(PATH, b"", None) for _ in range(3)]
        for call in calls:
            assert (await failure(call)).rpc == "UNAVAILABLE"
        assert len(sessions) == 2


async def test_those_that_wait_for_a_place_when_the_connection_breaks(connect_native):
    """What was on its way may have been seen: that fails. The others were not."""
    sessions = []

    async def script(session):
        sessions.append(session)
        if len(sessions) > 1:
            await h2.answering(session)
        await session.greet({h2.MAX_CONCURRENT_STREAMS: 1})
        await session.request()

    async with h2.serve_raw(script) as address:
        transport = connect_native(address)
        sent, *waiting = (transport.stream(PATH, b"%d" % number, None) for number in range(3))
        assert (await failure(sent)).rpc == "UNAVAILABLE"
        assert await asyncio.gather(*map(read_all, waiting)) == [[b"1"], [b"2"]]


async def test_a_deadline_and_a_client_that_leaves_hold_for_the_second_try(connect_native):
    cancelled = asyncio.Event()
    sessions = []

    async def script(session):
        sessions.append(session)
        await session.greet()
        streams = [(await session.request()).stream for _ in range(2)]
        if len(sessions) == 1:
            session.send(h2.goaway(0))
            await session.gone()
        for stream in streams:
            await session.until(h2.RST_STREAM, stream)
        cancelled.set()
        await session.gone()

    async with h2.serve_raw(script) as address:
        transport = connect_native(address)
        late, left = transport.stream(PATH, b"", 0.3), transport.stream(PATH, b"", None)
        assert (await failure(late)).rpc == "DEADLINE_EXCEEDED"
        left.cancel()
        assert (await failure(left)).code == "client_disconnected"
        await asyncio.wait_for(cancelled.wait(), 5)
        assert len(sessions) == 2


async def test_closing_starts_nothing_again(connect_native):
    sessions = []

    async def script(session):
        sessions.append(session)
        await session.greet({h2.MAX_CONCURRENT_STREAMS: 1})
        session.send(h2.answer((await session.request()).stream, b"x"))
        await session.gone()

    async with h2.serve_raw(script) as address:
        transport = connect_native(address)
        assert await read_all(transport.stream(PATH, b"", None)) == [b"x"]
        calls = [transport.stream(PATH, b"", None) for _ in range(3)]
        await asyncio.sleep(0)
        await transport.close()
        for call in calls:
            assert (await failure(call)).rpc == "UNAVAILABLE"
        assert len(sessions) == 1
