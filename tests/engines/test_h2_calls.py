"""Native calls against a peer that says exactly what a test wants (spec engine-contract 4.3 and 4.4; DESIGN 6)."""

import asyncio
import random

import hpack
import pytest

from smg.core.errors import GatewayError
from smg.engines.transport import h2 as h2_transport
from tests import h2_peer as h2
from tests.calls import failure, read_all

PATH = "/t.T/Stream"


class TestRequests:
    async def test_what_goes_over_the_wire(self, connect_native):
        seen = []

        async def script(session):
            await session.greet()
            for _ in range(2):
                seen.append(await session.request())
                session.send(h2.answer(seen[-1].stream, b"yes"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            assert await read_all(transport.stream(PATH, b"ask", None)) == [b"yes"]
            metadata = {"traceparent": "00-ab", "tracestate": "v=" + "x" * 500}
            assert await read_all(transport.stream(PATH, b"", 1.5, metadata)) == [b"yes"]
        first, second = seen
        assert (first.stream, first.body, second.stream, second.body) == (1, h2.message(b"ask"), 3, h2.message(b""))
        assert first.headers == {
            ":method": "POST",
            ":scheme": "http",
            ":path": PATH,
            ":authority": address,
            "te": "trailers",
            "content-type": "application/grpc",
            "grpc-accept-encoding": "identity",
        }
        assert second.headers == first.headers | {"grpc-timeout": "1500m"} | metadata

    @pytest.mark.parametrize("metadata", [{"Upper": "x"}, {"name": "line\nbreak"}, {"name": "é"}, {"": "x"}])
    async def test_metadata_that_cannot_be_sent(self, connect_native, metadata):
        with pytest.raises(GatewayError) as caught:
            connect_native("127.0.0.1:1").stream(PATH, b"", None, metadata)
        assert (caught.value.code, caught.value.status) == ("worker_failed", 500)

    async def test_a_long_request_waits_for_windows_and_holds_up_no_short_one(self, connect_native):
        big = random.Random(3).randbytes(300_000)

        async def script(session):
            await session.greet()
            got, short = b"", False
            while not short or len(got) < 65_535 - len(h2.message(b"me too")):
                frame = await session.read()
                if frame.kind == h2.DATA and frame.stream == 1:
                    got += frame.payload
                elif frame.kind == h2.DATA:
                    short = True
                    assert frame.payload == h2.message(b"me too")
                    session.send(h2.answer(3, b"short"))
            session.send(h2.window(0, 1 << 20), h2.window(1, 1 << 20))
            while len(got) < len(big) + 5:
                got += (await session.until(h2.DATA, 1)).payload
            assert got == h2.message(big)
            session.send(h2.answer(1, b"long"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            calls = transport.stream(PATH, big, None), transport.stream(PATH, b"me too", None)
            assert await read_all(calls[1]) == [b"short"]
            assert await read_all(calls[0]) == [b"long"]

    async def test_a_peer_that_stops_reading_for_a_while(self, connect_native):
        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 24})
            session.send(h2.window(0, 1 << 24))
            await asyncio.sleep(0.2)
            request = await session.request()
            session.send(h2.answer(request.stream, b"%d" % len(request.body)))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect_native(address).stream(PATH, bytes(6 << 20), None)) == [
                b"%d" % ((6 << 20) + 5)
            ]

    async def test_those_beyond_a_connections_places_find_some_on_others(self, connect_native):
        """How many a server takes (HAProxy: 100) is known after the first calls have been started on its connection."""
        taken, all_taken = [], asyncio.Event()

        async def script(session):
            await session.greet({h2.MAX_CONCURRENT_STREAMS: 2})
            mine = [await session.request() for _ in range(2)]
            taken.extend(request.body[5:] for request in mine)
            if len(taken) == 8:
                all_taken.set()
            await all_taken.wait()
            session.send(*(h2.answer(request.stream, request.body[5:]) for request in mine))
            await h2.answering_more(session)

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            calls = [transport.stream(PATH, b"%d" % number, 5) for number in range(9)]
            assert await asyncio.gather(*map(read_all, calls)) == [[b"%d" % number] for number in range(9)]
            assert len(transport._connections) == 4

    async def test_streams_wait_for_their_place(self, connect_native, monkeypatch):
        monkeypatch.setattr(h2_transport, "_MAX_CONNECTIONS", 1)

        async def script(session):
            await session.greet({h2.MAX_CONCURRENT_STREAMS: 2})
            first, second = await session.request(), await session.request()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.until(h2.HEADERS), 0.1)
            session.send(h2.answer(second.stream, b"2"), h2.answer(first.stream, b"1"))
            await answering_rest(session)

        async def answering_rest(session):
            while True:
                request = await session.request()
                session.send(h2.answer(request.stream, request.body[5:]))

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            calls = [transport.stream(PATH, b"%d" % number, None) for number in range(1, 6)]
            assert [await read_all(call) for call in calls] == [[b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]


class TestAnswers:
    @pytest.mark.parametrize("size", [1, 3, 50, 100_000])
    async def test_frames_and_messages_cut_anywhere(self, connect_native, size):
        messages = [b"", b"a", bytes(200), b"b" * 999]

        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            wire = h2.headers(stream) + h2.data(stream, b"".join(map(h2.message, messages)), size=7)
            wire += h2.trailers(stream)
            for at in range(0, len(wire), size):
                session.send(wire[at : at + size])
                if at % 16 == 0:
                    await asyncio.sleep(0)
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect_native(address).stream(PATH, b"", None)) == messages

    @pytest.mark.parametrize(
        ("trailers", "code", "status", "shown"),
        [
            (
                (("grpc-status", "3"), ("grpc-message", "bad%20thing%3A%20%E2%82%AC")),
                "invalid_request",
                400,
                "bad thing: €",
            ),
            ((("grpc-status", "14"), ("grpc-message", "host:1234 down")), "worker_failed", 503, "not reachable"),
            ((("grpc-status", "9"), ("smg-constraint-failed", "engine")), "constraint_failed", 422, "constraint"),
            ((("grpc-status", "99"),), "worker_failed", 500, "failed"),
            ((("grpc-status", "x"),), "worker_failed", 500, "failed"),
            ((("other", "x"),), "worker_failed", 500, "failed"),
        ],
    )
    @pytest.mark.parametrize("early", [False, True], ids=["trailers-only", "early-headers"])
    async def test_a_status_other_than_ok(self, connect_native, trailers, code, status, shown, early):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            if early:
                session.send(h2.headers(stream))
                await asyncio.sleep(0.01)
                session.send(h2.headers(stream, trailers, end=True))
            else:
                session.send(h2.headers(stream, (*h2.ANSWER, *trailers), end=True))
            await session.gone()

        async with h2.serve_raw(script) as address:
            error = await failure(connect_native(address).stream(PATH, b"", None))
        assert (error.code, error.status) == (code, status)
        assert shown in error.message
        assert "1234" not in error.message

    @pytest.mark.parametrize(
        ("http", "rpc"),
        [("503", "UNAVAILABLE"), ("404", "UNIMPLEMENTED"), ("401", "UNAUTHENTICATED"), ("500", "UNKNOWN")],
    )
    async def test_an_error_page_is_no_answer(self, connect_native, http, rpc):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream, ((":status", http), ("content-type", "text/html"))))
            session.send(h2.data(stream, h2.message(b"looks like a message") + b"<html>", end=True))
            await session.gone()

        async with h2.serve_raw(script) as address:
            call = connect_native(address).stream(PATH, b"", None)
            error = await failure(call)
        assert error.rpc == rpc

    async def test_another_content_type(self, connect_native):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream, ((":status", "200"), ("content-type", "text/plain"))))
            assert (await session.until(h2.RST_STREAM)).stream == stream
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert (await failure(connect_native(address).stream(PATH, b"", None))).rpc == "UNKNOWN"

    async def test_informational_headers_come_first(self, connect_native):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream, ((":status", "103"),)), h2.answer(stream, b"yes"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert await read_all(connect_native(address).stream(PATH, b"", None)) == [b"yes"]

    @pytest.mark.parametrize(
        ("wire", "rpc"),
        [
            (lambda s: h2.headers(s) + h2.headers(s), "INTERNAL"),  # headers in the middle
            (lambda s: h2.headers(s) + h2.data(s, h2.message(b"cut")[:6]) + h2.trailers(s), "INTERNAL"),
            (lambda s: h2.headers(s) + h2.data(s, h2.message(b"x", 1)), "INTERNAL"),  # compressed
            (lambda s: h2.headers(s) + h2.data(s, b"", end=True), "UNKNOWN"),  # no trailers
            (lambda s: h2.headers(s, h2.ANSWER, end=True), "UNKNOWN"),  # no status
            (lambda s: h2.data(s, b""), "INTERNAL"),  # data before headers
            (lambda s: h2.reset(s, 8), "CANCELLED"),
            (lambda s: h2.reset(s, 11), "RESOURCE_EXHAUSTED"),
            (lambda s: h2.reset(s, 12), "PERMISSION_DENIED"),
            (lambda s: h2.headers(s) + h2.reset(s, 2), "INTERNAL"),
        ],
        ids=range(10),
    )
    async def test_a_stream_that_goes_wrong_harms_no_other(self, connect_native, wire, rpc):
        async def script(session):
            await session.greet()
            other, stream = (await session.request()).stream, (await session.request()).stream
            session.send(wire(stream))
            session.send(h2.answer(other, b"yes"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            other, call = transport.stream(PATH, b"1", None), transport.stream(PATH, b"2", None)
            assert (await failure(call)).rpc == rpc
            assert await read_all(other) == [b"yes"]

    async def test_messages_before_the_end_of_file_are_delivered(self, connect_native):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream) + h2.data(stream, h2.message(b"one")))

        async with h2.serve_raw(script) as address:
            call = connect_native(address).stream(PATH, b"", None)
            assert await call.read() == [b"one"]
            assert (await failure(call)).code == "worker_stream_failed"
            assert (await failure(call)).code == "worker_stream_failed"  # and it stays so

    async def test_a_peer_that_only_stops_sending(self, connect_native):
        async def script(session):
            await session.greet()
            await session.request()
            session.writer.write_eof()
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert (await failure(connect_native(address).stream(PATH, b"", None))).rpc == "UNAVAILABLE"

    async def test_headers_of_several_calls_share_a_compression_state(self, connect_native):
        async def script(session):
            await session.greet()
            encoder = hpack.Encoder()
            for status in ("0", "5", "5", "0"):
                stream = (await session.request()).stream
                fields = (*h2.ANSWER, ("x-long-name-that-enters-the-table", "value"))
                session.send(h2.frame(h2.HEADERS, 4, stream, h2.block(fields, encoder)))
                last = (("grpc-status", status), ("grpc-message", "gone"))
                session.send(h2.frame(h2.HEADERS, 5, stream, h2.block(last, encoder)))
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            assert await read_all(transport.stream(PATH, b"", None)) == []
            for _ in range(2):
                assert (await failure(transport.stream(PATH, b"", None))).rpc == "NOT_FOUND"
            assert await read_all(transport.stream(PATH, b"", None)) == []

    @pytest.mark.parametrize("ends", [True, False])
    async def test_a_call_that_nobody_reads_any_more_ends_by_itself(self, connect_native, ends):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream), h2.data(stream, h2.message(b"last")))
            if ends:
                await asyncio.sleep(0.05)
                session.send(h2.trailers(stream))
            else:
                await session.until(h2.RST_STREAM, stream)
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            call = transport.stream(PATH, b"", None)
            assert await call.read() == [b"last"]
            (connection,) = transport._connections
            assert call in connection.calls
            call.linger(30 if ends else 0.05)
            ended = asyncio.Event()
            connection.ended = lambda *told: (type(connection).ended(connection, *told), ended.set())
            async with asyncio.timeout(5):
                await ended.wait()
            assert not connection.calls

    async def test_a_cancelled_calls_headers_still_count(self, connect_native):
        asked, cancelled = asyncio.Event(), asyncio.Event()

        async def script(session):
            await session.greet()
            encoder = hpack.Encoder()
            stream = (await session.request()).stream
            asked.set()
            await session.until(h2.RST_STREAM)
            session.send(h2.frame(h2.HEADERS, 4, stream, h2.block((*h2.ANSWER, ("x-new", "1")), encoder)))
            stream = (await session.request()).stream
            session.send(h2.frame(h2.HEADERS, 4, stream, h2.block((*h2.ANSWER, ("x-new", "1")), encoder)))
            session.send(h2.frame(h2.HEADERS, 5, stream, h2.block(h2.OK, encoder)))
            cancelled.set()
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            call = transport.stream(PATH, b"", None)
            # Before that, the call would be taken back without a word.
            await asked.wait()
            call.cancel()
            assert await read_all(transport.stream(PATH, b"", None)) == []
            assert cancelled.is_set()


class TestFlowControl:
    async def test_a_stalled_reader_stalls_its_own_stream_alone(self, connect_native):
        part = h2.message(bytes(16_379))
        sent: dict[int, int] = {1: 0, 3: 0}

        async def script(session):
            await session.greet()
            windows = {1: 262_144, 3: 262_144}

            async def listen():
                while True:
                    frame = await session.read()
                    if frame.kind == h2.WINDOW_UPDATE and frame.stream:
                        windows[frame.stream] += frame.word

            await session.request()
            await session.request()
            listening = asyncio.create_task(listen())
            session.send(h2.headers(1), h2.headers(3))
            while sent[3] < 200 or sent[1] < 40:
                for stream in (1, 3):
                    if windows[stream] >= 16_384:
                        windows[stream] -= 16_384
                        sent[stream] += 1
                        session.send(h2.data(stream, part))
                await asyncio.sleep(0)
            session.send(h2.trailers(1), h2.trailers(3))
            await asyncio.gather(listening, return_exceptions=True)

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            stalled, other = transport.stream(PATH, b"", None), transport.stream(PATH, b"", None)
            got = 0
            while got < 100:
                got += len(await other.read())
            assert sent[1] == 16  # one window, and not a byte more
            rest, all_of_it = await asyncio.gather(read_all(other), read_all(stalled))
            assert got + len(rest) == sent[3]
            assert len(all_of_it) == sent[1] >= 40
