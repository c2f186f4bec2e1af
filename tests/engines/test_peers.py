"""HTTP/2 peers that do what they may, and what they may not: every transport tells of it alike (DESIGN 6, conformance).

grpcio is the oracle. Where the two differ, both are written down.
"""

import asyncio
import contextlib
import struct

import grpc
import hpack
import pytest

from smg.core.errors import GatewayError
from smg.engines.transport import h2 as h2_transport
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport
from tests import h2_peer as h2
from tests.calls import failure, read_all

PATH = "/t.T/Stream"
NO_ERROR, REFUSED, CANCEL = 0, 7, 8
NAMES = [code.name for code in sorted(grpc.StatusCode, key=lambda code: code.value[0])]


@pytest.fixture(params=[GrpcioTransport, H2Transport], ids=["grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture
def native(transport):
    return transport is H2Transport


@pytest.fixture
async def connect(transport):
    async with contextlib.AsyncExitStack() as stack:

        def connect(address):
            made = transport(address)
            stack.push_async_callback(made.close)
            return made

        yield connect


async def outcome(call):
    """The messages of a call and the name of the status it ends with."""
    got = []
    try:
        while fresh := await call.read():
            got += fresh
    except GatewayError as error:
        return got, error.rpc
    return got, "OK"


async def body_of(session, stream, size):
    """Read until ``size`` bytes of a request are there."""
    got = b""
    while len(got) < size:
        got += (await session.until(h2.DATA, stream)).payload
    return got


class TestSettings:
    async def test_a_window_that_grows_while_a_request_is_sent(self, connect):
        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 10})
            stream = (await session.until(h2.HEADERS)).stream
            assert len(await body_of(session, stream, 10)) == 10
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.until(h2.DATA), 0.1)
            session.send(h2.settings({h2.INITIAL_WINDOW_SIZE: 65_535}))
            assert len(await body_of(session, stream, 995)) == 995
            acknowledged = [frame for frame in session.seen if frame.kind == h2.SETTINGS and frame.flags & h2.ACK]
            assert len(acknowledged) == 2
            session.send(h2.answer(stream, b"all of it"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect(address).stream(PATH, bytes(1000), 5)) == [b"all of it"]

    async def test_a_window_that_shrinks_below_nothing(self, connect):
        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 1000})
            stream = (await session.until(h2.HEADERS)).stream
            await body_of(session, stream, 1000)
            session.send(h2.settings({h2.INITIAL_WINDOW_SIZE: 0}), h2.window(stream, 900))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.until(h2.DATA), 0.1)
            session.send(h2.window(stream, 105 + 1000))
            assert len(await body_of(session, stream, 1005)) == 1005
            session.send(h2.answer(stream, b"all of it"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect(address).stream(PATH, bytes(2000), 5)) == [b"all of it"]

    async def test_larger_frames(self, connect):
        async def script(session):
            await session.greet({h2.MAX_FRAME_SIZE: 1 << 20, h2.INITIAL_WINDOW_SIZE: 8 << 20})
            session.send(h2.window(0, 8 << 20))
            request = await session.request()
            assert max(len(frame.payload) for frame in session.seen) <= 1 << 20
            session.send(h2.answer(request.stream, b"%d" % len(request.body)))
            await session.gone()

        async with h2.serve_raw(script) as address:
            call = connect(address).stream(PATH, bytes(6 << 20), 10)
            assert await read_all(call) == [b"%d" % ((6 << 20) + 5)]

    async def test_more_places_for_streams(self, connect, monkeypatch):
        monkeypatch.setattr(h2_transport, "_MAX_CONNECTIONS", 1)

        async def script(session):
            await session.greet({h2.MAX_CONCURRENT_STREAMS: 1})
            first = await session.request()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.until(h2.HEADERS), 0.1)
            session.send(h2.settings({h2.MAX_CONCURRENT_STREAMS: 3}))
            others = await session.request(), await session.request()
            session.send(*(h2.answer(each.stream, b"yes") for each in (first, *others)))
            await session.gone()

        async with h2.serve_raw(script) as address:
            made = connect(address)
            calls = [made.stream(PATH, b"", 5) for _ in range(3)]
            assert await asyncio.gather(*map(read_all, calls)) == [[b"yes"]] * 3

    async def test_settings_without_a_meaning(self, connect):
        async def script(session):
            await session.greet({0x99: 7, 8: 1})
            await h2.answering_more(session)

        async with h2.serve_raw(script) as address:
            assert await read_all(connect(address).stream(PATH, b"a", 5)) == [b"a"]


class TestControl:
    async def test_pings_are_answered_in_the_middle_of_a_stream(self, connect):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream), h2.frame(h2.PING, payload=b"12345678"))
            while True:
                ping = await session.until(h2.PING)
                # grpcio has pings of its own.
                if ping.flags & h2.ACK:
                    break
            assert ping.payload == b"12345678"
            session.send(h2.data(stream, h2.message(b"x")), h2.trailers(stream))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect(address).stream(PATH, b"", 5)) == [b"x"]

    async def test_unknown_frames_and_priorities_are_passed_over(self, connect):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            odd = h2.frame(77, 255, stream, b"odd") + h2.frame(h2.PRIORITY, stream=stream, payload=bytes(4) + b"\1")
            session.send(h2.headers(stream), odd, h2.data(stream, h2.message(b"x")), odd, h2.trailers(stream))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect(address).stream(PATH, b"", 5)) == [b"x"]

    async def test_nothing_is_pushed(self, connect, native):
        sessions, over = [], asyncio.Event()

        async def script(session):
            sessions.append(session)
            if len(sessions) > 1:
                await h2.answering(session)
            assert await session.reader.readexactly(len(h2.PREFACE)) == h2.PREFACE
            refusing = (await session.until(h2.SETTINGS)).payload
            assert struct.pack(">HI", 2, 0) in refusing
            session.send(h2.settings())
            stream = (await session.request()).stream
            promise = (2).to_bytes(4, "big") + h2.block(((":method", "GET"), (":path", "/")))
            session.send(h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, stream, promise), h2.answer(stream, b"x"))
            await session.gone()
            over.set()

        async with h2.serve_raw(script) as address:
            made = connect(address)
            # grpcio passes it over, we end the connection (RFC 9113, 8.4).
            assert await outcome(made.stream(PATH, b"a", 5)) == (([], "UNAVAILABLE") if native else ([b"x"], "OK"))
            if native:
                await asyncio.wait_for(over.wait(), 5)
                assert [frame.payload[4:] for frame in sessions[0].seen if frame.kind == h2.GOAWAY] == [b"\0\0\0\1"]
                assert await read_all(made.stream(PATH, b"again", 5)) == [b"again"]

    async def test_going_away_with_streams_in_flight(self, connect):
        sessions = []

        async def script(session):
            sessions.append(session)
            if len(sessions) > 1:
                await h2.answering(session)
            await session.greet()
            streams = [(await session.request()).stream for _ in range(3)]
            session.send(h2.headers(streams[0]), h2.data(streams[0], h2.message(b"one")), h2.goaway(streams[1]))
            await asyncio.sleep(0.1)
            session.send(h2.data(streams[0], h2.message(b"two")), h2.trailers(streams[0]))
            session.send(h2.answer(streams[1], b"whole"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            made = connect(address)
            calls = []
            for _ in range(3):
                calls.append(made.stream(PATH, b"", 5))
                await asyncio.sleep(0.02)
            assert await outcome(calls[0]) == ([b"one", b"two"], "OK")
            assert await outcome(calls[1]) == ([b"whole"], "OK")
            assert await outcome(calls[2]) == ([b""], "OK")  # never looked at, so asked again elsewhere
            assert await read_all(made.stream(PATH, b"new", 5)) == [b"new"]
            assert len(sessions) == 2

    async def test_a_stream_that_was_refused_is_asked_for_again_once(self, connect, native):
        """grpcio leaves that to its callers."""
        asked = []

        async def script(session):
            await session.greet()
            while True:
                request = await session.request()
                asked.append(request.body[5:])
                if asked.count(b"twice") == 2 and request.body[5:] == b"twice":
                    session.send(h2.answer(request.stream, b"x"))
                else:
                    session.send(h2.reset(request.stream, REFUSED))

        async with h2.serve_raw(script) as address:
            made = connect(address)
            twice = await outcome(made.stream(PATH, b"twice", 5))
            assert twice == (([b"x"], "OK") if native else ([], "UNAVAILABLE"))
            assert await outcome(made.stream(PATH, b"always", 5)) == ([], "UNAVAILABLE")
        assert asked == ([b"twice"] * 2 + [b"always"] * 2 if native else [b"twice", b"always"])

    async def test_cancelling_resets_with_cancel(self, connect):
        codes = []

        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream), h2.data(stream, h2.message(b"one")))
            codes.append((await session.until(h2.RST_STREAM, stream)).word)
            # What was under way comes to nobody.
            session.send(h2.data(stream, h2.message(b"late")), h2.trailers(stream))
            await h2.answering_more(session)

        async with h2.serve_raw(script) as address:
            made = connect(address)
            call = made.stream(PATH, b"", 5)
            assert await call.read() == [b"one"]
            call.cancel()
            assert (await failure(call)).code == "client_disconnected"
            assert await read_all(made.stream(PATH, b"next", 5)) == [b"next"]
        assert codes == [CANCEL]


class TestHalvesOfAStream:
    @pytest.mark.parametrize("after", ["no-error", "nothing"])
    async def test_an_answer_before_the_request_is_all_there(self, connect, after):
        """A server may refuse a long request half-way, and say with a reset that it wants no more of it."""

        async def script(session):
            await session.greet()
            stream = (await session.until(h2.HEADERS)).stream
            await session.until(h2.DATA, stream)
            refusal = (*h2.ANSWER, ("grpc-status", "8"), ("grpc-message", "full"))
            session.send(h2.headers(stream, refusal, end=True))
            if after == "no-error":
                session.send(h2.reset(stream, NO_ERROR))
            # What is there of the request has been thrown away.
            session.send(h2.window(0, 1 << 20))
            await h2.answering_more(session)

        async with h2.serve_raw(script) as address:
            made = connect(address)
            assert await outcome(made.stream(PATH, bytes(4 << 20), 5)) == ([], "RESOURCE_EXHAUSTED")
            assert await read_all(made.stream(PATH, b"next", 5)) == [b"next"]

    async def test_a_refusal_and_the_end_of_the_connection(self, connect, native):
        """The refusal is told, not the broken connection that the rest of the request runs into (as grpcio may)."""

        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 24})
            session.send(h2.window(0, 1 << 24))
            stream = (await session.until(h2.HEADERS)).stream
            session.send(h2.headers(stream, (*h2.ANSWER, ("grpc-status", "8")), end=True))
            await session.writer.drain()

        async with h2.serve_raw(script) as address:
            error = await failure(connect(address).stream(PATH, bytes(8 << 20), 5))
        assert error.rpc in ("RESOURCE_EXHAUSTED", *(() if native else ("UNAVAILABLE",)))

    async def test_a_peer_that_only_stops_sending_has_gone(self, connect, native):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream), h2.data(stream, h2.message(b"one")))
            session.writer.write_eof()
            await session.gone()

        async with h2.serve_raw(script) as address:
            got, status = await outcome(connect(address).stream(PATH, b"", 5))
        assert status == "UNAVAILABLE"
        # grpcio may drop what came just before.
        assert got == [b"one"] or (not native and got == [])


def pieces(stream, block, size):
    """Trailers in several frames of up to ``size`` bytes."""
    cut = [block[at : at + size] for at in range(0, len(block), size)]
    last = len(cut) - 1
    return h2.frame(h2.HEADERS, h2.END_STREAM, stream, cut[0]) + b"".join(
        h2.frame(h2.CONTINUATION, h2.END_HEADERS if at == last else 0, stream, cut[at]) for at in range(1, len(cut))
    )


# What a peer says on a stream, what of it is delivered, and the status. GRPCIO has what grpcio may make of it instead.
GRPCIO = {
    # It does not know padding.
    "padding": ([], "INTERNAL"),
    "padded-headers-with-a-priority": ([], "INTERNAL"),
    # It takes the first headers for the answer's.
    "informational": ([], "UNKNOWN"),
    "trailers-in-capitals": ([], "INTERNAL"),
    # It drops what it has read when an error follows at once.
    "messages-and-a-reset": ([], "INTERNAL"),
    "no-trailers": ([], "UNKNOWN"),
    # It does not notice.
    "cut-message": ([], "OK"),
    # It only looks for a status where the specification has one.
    "early-status": ([], "UNKNOWN"),
    "early-status-and-messages": ([], "UNKNOWN"),
}
ENDS = {
    "ok": (lambda s: h2.answer(s, b"a"), [b"a"], "OK"),
    "no-messages": (lambda s: h2.answer(s), [], "OK"),
    "empty-messages": (lambda s: h2.answer(s, b"", b""), [b"", b""], "OK"),
    "padding": (
        lambda s: (
            h2.headers(s) + h2.frame(h2.DATA, h2.PADDED, s, b"\x03" + h2.message(b"padded") + bytes(3)) + h2.trailers(s)
        ),
        [b"padded"],
        "OK",
    ),
    "empty-frames": (
        lambda s: h2.headers(s) + h2.data(s, b"") * 3 + h2.data(s, h2.message(b"x"), size=1) + h2.trailers(s),
        [b"x"],
        "OK",
    ),
    "cut-in-every-place": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"long one") * 3, size=3) + h2.trailers(s),
        [b"long one"] * 3,
        "OK",
    ),
    "informational": (
        lambda s: h2.headers(s, ((":status", "103"), ("link", "</a>"))) + h2.answer(s, b"a"),
        [b"a"],
        "OK",
    ),
    "content-type-with-a-codec": (
        lambda s: (
            h2.headers(s, ((":status", "200"), ("content-type", "application/grpc+proto")))
            + h2.data(s, h2.message(b"a"))
            + h2.trailers(s)
        ),
        [b"a"],
        "OK",
    ),
    "compressed": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"\x1f\x8b", flag=1)) + h2.trailers(s),
        [],
        "INTERNAL",
    ),
    "binary-trailers": (
        lambda s: (
            h2.headers(s)
            + h2.trailers(s, 5, ("grpc-status-details-bin", "CAUSBGhlcmU"), ("x-bin", "AAEC/w=="), ("x-empty", ""))
        ),
        [],
        "NOT_FOUND",
    ),
    "trailers-in-pieces": (
        lambda s: h2.headers(s) + pieces(s, h2.block((("x-long", "x" * 9000), ("grpc-status", "5"))), 3000),
        [],
        "NOT_FOUND",
    ),
    "trailers-in-single-bytes": (
        lambda s: h2.headers(s) + pieces(s, h2.block((("grpc-status", "5"),)), 1),
        [],
        "NOT_FOUND",
    ),
    "padded-headers-with-a-priority": (
        lambda s: (
            h2.frame(
                h2.HEADERS,
                h2.END_HEADERS | h2.PADDED | h2.WITH_PRIORITY,
                s,
                b"\x03" + bytes(4) + b"\x0f" + h2.block(h2.ANSWER) + bytes(3),
            )
            + h2.trailers(s)
        ),
        [],
        "OK",
    ),
    "table-sizes": (
        # Back to nothing and to 4096 bytes, as encoders do after a change of SETTINGS.
        lambda s: (
            h2.frame(h2.HEADERS, h2.END_HEADERS, s, b"\x20\x3f\xe1\x1f" + h2.block(h2.ANSWER))
            + h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, s, b"\x20" + h2.block(h2.OK))
        ),
        [],
        "OK",
    ),
    "huffman": (
        lambda s: (
            h2.frame(h2.HEADERS, h2.END_HEADERS, s, h2.block(h2.ANSWER, hpack.Encoder()))
            + h2.frame(
                h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, s, h2.block((("grpc-status", "5"),), hpack.Encoder())
            )
        ),
        [],
        "NOT_FOUND",
    ),
    "trailers-in-capitals": (
        # Malformed (RFC 9113, 8.2).
        lambda s: h2.headers(s) + h2.headers(s, (("Grpc-Status", "5"),), end=True),
        [],
        "UNKNOWN",
    ),
    "status-5": (lambda s: h2.headers(s) + h2.trailers(s, 5, ("grpc-message", "not%20here")), [], "NOT_FOUND"),
    "status-without-meaning": (lambda s: h2.headers(s) + h2.trailers(s, 99), [], "UNKNOWN"),
    "messages-and-a-status": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"a")) + h2.trailers(s, 13),
        [b"a"],
        "INTERNAL",
    ),
    "reset-no-error": (lambda s: h2.headers(s) + h2.reset(s, 0), [], "INTERNAL"),
    "reset-cancel": (lambda s: h2.headers(s) + h2.reset(s, CANCEL), [], "CANCELLED"),
    "reset-calm": (lambda s: h2.headers(s) + h2.reset(s, 11), [], "RESOURCE_EXHAUSTED"),
    "reset-security": (lambda s: h2.headers(s) + h2.reset(s, 12), [], "PERMISSION_DENIED"),
    "reset-internal": (lambda s: h2.headers(s) + h2.reset(s, 2), [], "INTERNAL"),
    "messages-and-a-reset": (
        lambda s: h2.headers(s) + h2.data(s, h2.message(b"a")) + h2.reset(s, 2),
        [b"a"],
        "INTERNAL",
    ),
    "cut-message": (lambda s: h2.headers(s) + h2.data(s, h2.message(b"cut")[:6]) + h2.trailers(s), [], "INTERNAL"),
    "no-trailers": (lambda s: h2.headers(s) + h2.data(s, h2.message(b"a"), end=True), [b"a"], "UNKNOWN"),
    "early-status": (
        # What proxies over Go's HTTP library make of an answer of trailers only.
        lambda s: (
            h2.headers(s, (*h2.ANSWER, ("grpc-status", "8"), ("grpc-message", "full"))) + h2.data(s, b"", end=True)
        ),
        [],
        "RESOURCE_EXHAUSTED",
    ),
    "early-status-and-trailers": (
        lambda s: h2.headers(s, (*h2.ANSWER, ("grpc-status", "8"))) + h2.trailers(s, 5),
        [],
        "NOT_FOUND",
    ),
    "early-status-and-messages": (
        lambda s: (
            h2.headers(s, (*h2.ANSWER, ("grpc-status", "0"))) + h2.data(s, h2.message(b"a")) + h2.data(s, b"", end=True)
        ),
        [b"a"],
        "UNKNOWN",
    ),
    "early-status-and-a-reset": (
        lambda s: h2.headers(s, (*h2.ANSWER, ("grpc-status", "0"))) + h2.reset(s, 2),
        [],
        "INTERNAL",
    ),
    "http-413": (
        # nginx, for a request above its client_max_body_size.
        lambda s: h2.headers(s, ((":status", "413"), ("content-type", "text/html"))) + h2.data(s, b"<html>", end=True),
        [],
        "UNKNOWN",
    ),
    "http-503": (lambda s: h2.headers(s, ((":status", "503"),), end=True), [], "UNAVAILABLE"),
    "http-404": (lambda s: h2.headers(s, ((":status", "404"),), end=True), [], "UNIMPLEMENTED"),
    "http-401": (lambda s: h2.headers(s, ((":status", "401"),), end=True), [], "UNAUTHENTICATED"),
    "http-500": (lambda s: h2.headers(s, ((":status", "500"),), end=True), [], "UNKNOWN"),
}


@pytest.mark.parametrize("case", ENDS)
async def test_every_end_of_a_stream(connect, native, case):
    wire, messages, status = ENDS[case]
    allowed = [(messages, status)]
    if not native and case in GRPCIO:
        allowed.append(GRPCIO[case])

    async def script(session):
        await session.greet()
        stream = (await session.request()).stream
        session.send(wire(stream))
        await session.gone()

    async with h2.serve_raw(script) as address:
        assert await outcome(connect(address).stream(PATH, b"", 5)) in allowed


@pytest.mark.parametrize("number", range(1, 17))
async def test_every_status_without_headers_before_it(connect, number):
    async def script(session):
        await session.greet()
        stream = (await session.request()).stream
        fields = (*h2.ANSWER, ("grpc-status", str(number)), ("grpc-message", "what%3A %E2%82%AC 100%"))
        session.send(h2.headers(stream, fields, end=True))
        await session.gone()

    async with h2.serve_raw(script) as address:
        error = await failure(connect(address).stream(PATH, b"", 5))
    assert error.detail == f"{error.rpc}: what: € 100%"
    assert error.rpc == NAMES[number]
