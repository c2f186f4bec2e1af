"""Native connections and the lives of their calls, against a scripted peer (spec engine-contract 4.2 and 4.4)."""

import asyncio
import contextlib
import random
import select
import socket
import ssl
import struct

import pytest
import uvloop

from smg.core.errors import GatewayError
from smg.engines.transport import h2_link
from smg.engines.transport.h2 import H2Transport
from smg.engines.transport.h2_link import SocketLink
from tests import h2_peer as h2
from tests.calls import failure, read_all
from tests.certificates import self_signed
from tests.h2_native import connected, opened

PATH = "/t.T/Stream"


def name_means(monkeypatch, hosts: list[str], port: int) -> None:
    """Let every name have these addresses."""

    async def getaddrinfo(host, port, **_):
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port))
            for each in hosts
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


class TestConnections:
    async def test_going_away_lets_streams_finish_and_others_go_elsewhere(self, connect_native):
        sessions, closed = [], asyncio.Event()

        async def script(session):
            sessions.append(session)
            if len(sessions) > 1:
                await h2.answering(session)
            await session.greet({h2.MAX_CONCURRENT_STREAMS: 3})
            for _ in range(3):
                await session.request()
            session.send(h2.headers(1), h2.data(1, h2.message(b"one")))
            session.send(h2.goaway(0x7FFFFFFF, 0, b"graceful"), h2.goaway(3))
            await asyncio.sleep(0.1)
            session.send(h2.data(1, h2.message(b"two")), h2.trailers(1), h2.answer(3, b"three"))
            await session.gone()
            closed.set()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            first, second, third, queued = (transport.stream(PATH, b"%d" % number, None) for number in range(4))
            assert await read_all(third) == [b"2"]  # not processed, so it was asked again
            assert await read_all(queued) == [b"3"]  # never sent, so it just went elsewhere
            assert await read_all(transport.stream(PATH, b"new", None)) == [b"new"]
            assert await read_all(first) == [b"one", b"two"]
            assert await read_all(second) == [b"three"]
            assert len(sessions) == 2
            await asyncio.wait_for(closed.wait(), 5)

    async def test_an_idle_connection_is_replaced_after_goaway(self, connect_native):
        count = 0

        async def script(session):
            nonlocal count
            count += 1
            await session.greet()
            request = await session.request()
            session.send(h2.answer(request.stream, b"%d" % count), h2.goaway(request.stream))
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            for number in (1, 2, 3):
                assert await read_all(transport.stream(PATH, b"", None)) == [b"%d" % number]

    @pytest.mark.parametrize(
        "wire",
        [
            h2.frame(h2.PUSH_PROMISE, 4, 1, bytes(4)),
            h2.frame(h2.HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),  # no HPACK
            h2.frame(h2.HEADERS, 4, 1, b"\xc0"),  # an index that was never added
            h2.frame(h2.HEADERS, 4, 1, b"\x40"),
            h2.data(99, b""),
            h2.frame(h2.PING, payload=bytes(8)) * 30_000,
            h2.headers(1) + h2.data(1, b"") * 30_000,
            h2.headers(1, ((":status", "103"),)) * 30_000,
            h2.frame(h2.HEADERS, 0, 1) + h2.frame(h2.CONTINUATION, 0, 1) * 60_000,
        ],
        ids=["push", "hpack", "index", "cut-hpack", "unopened", "pings", "empty-data", "informational", "continuation"],
    )
    async def test_a_broken_peer_costs_its_connection_and_no_more(self, connect_native, wire):
        count = 0

        async def script(session):
            nonlocal count
            count += 1
            if count > 1:
                await h2.answering(session)
            await session.greet()
            await session.request()
            session.send(wire)
            assert (await session.until(h2.GOAWAY)).payload[4:] != bytes(4)
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            assert (await failure(transport.stream(PATH, b"", None))).rpc == "UNAVAILABLE"
            assert await read_all(transport.stream(PATH, b"again", None)) == [b"again"]

    async def test_a_peer_that_never_reads_holds_up_no_end(self, connect_native):
        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 30})
            session.send(h2.window(0, 1 << 30))
            await asyncio.Event().wait()

        # Beyond what the sockets' buffers take, and the peer reads ahead.
        async with h2.serve_raw(script, limit=1 << 16) as address:
            transport = connect_native(address, keepalive=0.1, answer=0.1)
            calls = [transport.stream(PATH, bytes(8 << 20), None) for _ in range(3)]
            for call in calls:
                assert (await failure(call)).rpc == "UNAVAILABLE"
            assert not transport._connections

    async def test_calls_that_come_and_go_while_a_peer_does_not_read_end_its_connection(self, connect_native):
        sessions = []

        async def script(session):
            sessions.append(session)
            if len(sessions) > 1:
                await h2.answering(session)
            await session.greet()
            await asyncio.Event().wait()

        async with h2.serve_raw(script, limit=1 << 16) as address:
            transport = connect_native(address)
            waiting = transport.stream(PATH, b"", None)
            [connection] = transport._connections
            for _ in range(2900):
                transport.stream(PATH, b"", None, {"tracestate": "x" * 8000}).cancel()
                await asyncio.sleep(0)
                if connection.closed:
                    break
            assert connection.closed
            error = await asyncio.wait_for(failure(waiting), 5)
            assert (error.rpc, "does not read" in error.detail) == ("UNAVAILABLE", True)
            assert await read_all(transport.stream(PATH, b"elsewhere", 5)) == [b"elsewhere"]

    async def test_oversized_headers(self, connect_native):
        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            encoded = h2.block([("x", "y" * 60_000)] * 3)
            session.send(h2.frame(h2.HEADERS, 0, stream, encoded[:16000]))
            for at in range(16000, len(encoded), 16000):
                session.send(h2.frame(h2.CONTINUATION, 0, stream, encoded[at : at + 16000]))
            session.send(h2.frame(h2.CONTINUATION, 4, stream))
            await session.gone()

        async with h2.serve_raw(script) as address:
            assert (await failure(connect_native(address).stream(PATH, b"", None))).rpc == "UNAVAILABLE"

    async def test_a_peer_that_never_greets(self, connect_native):
        async def script(session):
            await session.gone()

        async with h2.serve_raw(script) as address:
            error = await failure(connect_native(address, connect=0.1).stream(PATH, b"", None))
        assert (error.status, error.retryable) == (503, True)
        assert "too long" in error.detail

    @pytest.mark.parametrize(
        ("first", "told"),
        [
            (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "speaks HTTP/1 and no HTTP/2"),
            (b"SSH-2.0-server\r\n", "does not begin as an HTTP/2 server does"),
            (b"\x15\x03\x01\x00\x02\x02\x46", "grpcs://"),
        ],
        ids=["http/1", "ssh", "tls"],
    )
    async def test_a_peer_that_speaks_something_else(self, connect_native, first, told):
        async def script(session):
            session.send(first)
            await session.gone()

        async with h2.serve_raw(script) as address:
            error = await failure(connect_native(address, connect=0.3).stream(PATH, b"", None))
        assert (error.status, error.code, error.worker_fault) == (503, "worker_failed", True)
        assert told in error.detail

    async def test_a_server_behind_tls(self, connect_native, tmp_path):
        files = self_signed(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files["tls_cert_path"], files["tls_key_path"])
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            error = await failure(connect_native(f"127.0.0.1:{port}").stream(PATH, b"", None))
        assert "did not begin to speak HTTP/2" in error.detail or "grpcs://" in error.detail

    async def test_a_peer_that_closes_at_once(self, connect_native):
        async def script(session):
            pass

        async with h2.serve_raw(script) as address:
            error = await failure(connect_native(address).stream(PATH, b"", None))
        assert "did not begin to speak HTTP/2" in error.detail

    async def test_nobody_there(self, connect_native):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            transport = connect_native(f"127.0.0.1:{taken.getsockname()[1]}")
            for _ in range(5):
                error = await failure(transport.stream(PATH, b"", None))
                assert (error.status, error.retryable, error.worker_fault) == (503, True, True)
            assert not transport._connections

    async def test_of_a_names_addresses_those_that_refuse_or_swallow_are_passed_over(self, connect_native, monkeypatch):
        async with h2.serve_raw(h2.answering) as address:
            port = int(address.rpartition(":")[2])
            with socket.socket() as swallows, contextlib.ExitStack() as crowd:
                # Nobody takes the connections that fill its queue, so the kernel answers no further one.
                swallows.bind(("127.0.0.2", port))
                swallows.listen(0)
                for _ in range(4):
                    guest = crowd.enter_context(socket.socket())
                    guest.setblocking(False)
                    guest.connect_ex(("127.0.0.2", port))
                hosts = ["::1", "127.0.0.3", "127.0.0.2", "127.0.0.1"]
                name_means(monkeypatch, hosts, port)
                for _ in range(2):
                    transport = connect_native(f"engine.test:{port}")
                    assert await read_all(transport.stream(PATH, b"x", None)) == [b"x"]
                    await transport.close()

    async def test_an_address_of_a_kind_that_the_system_lacks_is_passed_over(self, connect_native, monkeypatch):
        async with h2.serve_raw(h2.answering) as address:
            port = int(address.rpartition(":")[2])
            name_means(monkeypatch, ["::1", "127.0.0.1"], port)
            real = socket.socket

            def without_ipv6(family=-1, *more, **named):
                if family == socket.AF_INET6:
                    raise OSError(97, "Address family not supported by protocol")
                return real(family, *more, **named)

            monkeypatch.setattr(h2_link.socket, "socket", without_ipv6)
            assert await read_all(connect_native(f"engine.test:{port}").stream(PATH, b"x", None)) == [b"x"]

    async def test_a_name_is_looked_up_for_each_connection(self, connect_native, monkeypatch):
        async with h2.serve_raw(h2.answering) as address:
            port = int(address.rpartition(":")[2])
            transport = connect_native(f"engine.test:{port}")
            name_means(monkeypatch, ["127.0.0.3"], port)
            assert (await failure(transport.stream(PATH, b"", None))).status == 503
            # As a service of Kubernetes whose pod has moved.
            name_means(monkeypatch, ["127.0.0.1"], port)
            assert await read_all(transport.stream(PATH, b"x", None)) == [b"x"]

    async def test_a_name_that_means_nothing(self, connect_native):
        error = await failure(connect_native("grpc://no-such-host.invalid:1").stream(PATH, b"", None))
        assert error.status == 503
        assert "no-such-host" not in error.message


class TestTheLastWords:
    async def test_what_came_before_a_broken_connection_is_heard_even_when_sending_notices_first(self):
        listener = socket.create_server(("127.0.0.1", 0))
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with listener, ours, theirs:
            ours.setblocking(False)
            events = []

            class Peer:
                native = connected()

                def settle(self):
                    events.append([stream.id for stream in self.native.take_ready()])

                def lost(self, details):
                    events.append("lost")

            [stream] = opened(Peer.native)
            link = SocketLink(ours, Peer())
            theirs.sendall(h2.data(stream.id, h2.message(b"the last words")))
            # Closing so resets the connection.
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            select.select([ours], [], [], 5)
            for _ in range(2):
                Peer.native.ping()
                link.flush()
            link.close()
        assert events[:2] == [[stream.id], "lost"]
        assert Peer.native.take(stream) == [b"the last words"]


class TestLives:
    async def test_cancelling_resets_and_a_new_call_takes_its_place(self, connect_native):
        codes = []

        async def script(session):
            await session.greet({h2.MAX_CONCURRENT_STREAMS: 1})
            await session.request()
            session.send(h2.headers(1))
            codes.append((await session.until(h2.RST_STREAM)).word)
            request = await session.request()
            session.send(h2.answer(request.stream, b"next"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            call = transport.stream(PATH, b"", None)
            [connection] = transport._connections
            await asyncio.sleep(0.05)
            waiting = asyncio.create_task(call.read())
            await asyncio.sleep(0)
            call.cancel()
            error = await failure(call)
            assert error.code == "client_disconnected"
            with pytest.raises(GatewayError):
                await waiting
            following = transport.stream(PATH, b"", None)
            assert following in connection.calls
            assert await read_all(following) == [b"next"]
        assert codes == [8]

    async def test_a_call_cancelled_before_the_connection_is_made_is_never_sent(self, connect_native):
        async def script(session):
            await asyncio.sleep(0.1)
            await h2.answering(session)

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            transport.stream(PATH, b"never", None).cancel()
            assert await read_all(transport.stream(PATH, b"sent", None)) == [b"sent"]
            [connection] = transport._connections
            assert not connection.calls

    async def test_the_deadline_resets(self, connect_native):
        codes = []

        async def script(session):
            await session.greet()
            await session.request()
            session.send(h2.headers(1), h2.data(1, h2.message(b"one")))
            codes.append((await session.until(h2.RST_STREAM)).word)
            await session.gone()

        async with h2.serve_raw(script) as address:
            call = connect_native(address).stream(PATH, b"", 0.1)
            assert await call.read() == [b"one"]
            error = await failure(call)
            assert (error.status, error.code) == (504, "upstream_timeout")
            await asyncio.sleep(0.05)
        assert codes == [8]

    async def test_giving_up_a_read_loses_nothing(self, connect_native):
        gate = asyncio.Event()

        async def script(session):
            await session.greet()
            await session.request()
            await gate.wait()
            session.send(h2.answer(1, b"one"))
            await session.gone()

        async with h2.serve_raw(script) as address:
            call = connect_native(address).stream(PATH, b"", None)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call.read(), 0.05)
            gate.set()
            assert await read_all(call) == [b"one"]

    async def test_closing_ends_everything_in_every_state(self, connect_native):
        async def script(session):
            await session.greet()
            await session.request()
            assert (await session.until(h2.GOAWAY)).payload == bytes(8)
            await session.gone()

        async with h2.serve_raw(script) as address:
            running, connecting = connect_native(address), connect_native("127.0.0.1:1")
            call = running.stream(PATH, b"", None)
            await asyncio.sleep(0.05)
            early = connecting.stream(PATH, b"", None)
            await connecting.close()
            await running.close()
            await running.close()
            for each in (call, early):
                assert (await failure(each)).rpc == "UNAVAILABLE"
            with pytest.raises(GatewayError):
                running.stream(PATH, b"", None)

    async def test_three_calls_in_a_row_that_find_it_unavailable_replace_a_connection(self, connect_native):
        peers = []

        async def script(session):
            peers.append(session)
            await session.greet()
            while True:
                request = await session.request()
                status = 0 if request.body[5:] == b"ok" else 14
                session.send(h2.headers(request.stream, (*h2.ANSWER, ("grpc-status", str(status))), end=True))

        async with h2.serve_raw(script) as address:
            transport = connect_native(address)
            for message in (b"", b"", b"ok", b"", b""):
                try:
                    await read_all(transport.stream(PATH, message, None))
                except GatewayError as error:
                    assert error.rpc == "UNAVAILABLE"
                assert len(peers) == 1
            await failure(transport.stream(PATH, b"", None))
            await read_all(transport.stream(PATH, b"ok", None))
            assert len(peers) == 2

    async def test_two_thousand_streams_come_and_go(self, connect_native):
        rng = random.Random(5)
        async with h2.serve_raw(h2.answering) as address:
            transport = connect_native(address)

            async def one(number):
                call = transport.stream(PATH, b"%d" % number, 30.0)
                if rng.random() < 0.1:
                    await asyncio.sleep(0)
                    call.cancel()
                    return b"%d" % number
                return b"".join(await read_all(call))

            for start in range(0, 2000, 250):
                got = await asyncio.gather(*(one(number) for number in range(start, start + 250)))
                assert got == [b"%d" % number for number in range(start, start + 250)]
            for connection in transport._connections:
                assert not connection.calls
                assert connection.native.streams == connection.native.queued == []
            assert len(transport._connections) == 2  # 250 at a time, 128 on each
            assert not transport._leaving


def test_it_runs_on_uvloop_too():
    """The gateway runs on uvloop, whose rules for sockets are stricter than asyncio's."""

    async def script(session):
        await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 24})
        session.send(h2.window(0, 1 << 28))
        while True:
            request = await session.request()
            session.send(h2.headers(request.stream), h2.trailers(request.stream, 5 if len(request.body) == 5 else 0))

    async def run():
        async with h2.serve_raw(script) as address:
            transport = H2Transport(address)
            calls = [transport.stream(PATH, bytes(1 << 20), 30.0) for _ in range(40)]
            refused = transport.stream(PATH, b"", 30.0)
            transport.stream(PATH, b"", 30.0).cancel()
            assert await asyncio.gather(*(read_all(call) for call in calls)) == [[]] * 40
            assert (await failure(refused)).rpc == "NOT_FOUND"
            open_call = transport.stream(PATH, b"", 30.0)
            await transport.close()
        assert (await failure(open_call)).rpc == "UNAVAILABLE"
        again = H2Transport(address)
        assert (await failure(again.stream(PATH, b"", 30.0))).rpc == "UNAVAILABLE"
        await again.close()

    uvloop.run(run())
