"""Our HTTP/1.1 client: framings, kept connections, flow control, and what becomes of broken connections."""

import asyncio
import contextlib
import socket
import ssl

import pytest

from smg.engines.http.address import HttpAddress
from smg.engines.http.client import HttpClient, Unreachable
from smg.engines.http.connection import HIGH_WATER, BrokenExchange
from tests.certificates import self_signed
from tests.engines.http.peers import Peer, peer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
TO_EOF = b"HTTP/1.1 200 OK\r\nX-One: 1\r\n\r\nhello"
LIMIT = 1 << 20


@contextlib.asynccontextmanager
async def client_to(port: int, **options):
    client = HttpClient(HttpAddress("127.0.0.1", port, "tls" in options), **options)
    try:
        yield client
    finally:
        client.close()


async def text(client: HttpClient, **request) -> bytes:
    response = await client.request("POST", "/x", **request)
    assert response.status == 200
    return await response.whole(LIMIT)


@pytest.mark.parametrize("answer", [[OK], [CHUNKED], [TO_EOF, Peer.CLOSE]], ids=["length", "chunked", "to-eof"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_every_framing_however_it_is_cut(answer, step):
    data = answer[0]
    pieces = [piece for at in range(0, len(data), step) for piece in (data[at : at + step], 0)]
    async with peer([*pieces, *answer[1:]]) as server, client_to(server.port) as client:
        assert await text(client) == b"hello"


async def test_what_is_sent():
    async with peer([OK], [OK]) as server, client_to(server.port) as client:
        await text(client, headers=[("x-a", "1")], body=b"{}")
        head, body = server.requests[0]
        assert head == f"POST /x HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n"
        assert body == b"{}"
        await (await client.request("GET", "/y")).whole(LIMIT)
        assert server.requests[1][0] == f"GET /y HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n\r\n"


async def test_header_names_are_in_lower_case_and_interim_answers_are_skipped():
    async with (
        peer(
            [b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 429 Busy\r\nRetry-After: 3\r\ncontent-length: 0\r\n\r\n"]
        ) as server,
        client_to(server.port) as client,
    ):
        response = await client.request("POST", "/x")
        assert (response.status, response.header("retry-after")) == (429, "3")
        assert await response.read() == b""


async def test_a_body_of_megabytes_goes_out_whole():
    body = bytes(range(256)) * 20_000
    async with peer([OK]) as server, client_to(server.port) as client:
        assert await text(client, body=body) == b"hello"
        assert server.requests[0][1] == body


class TestKeptConnections:
    async def test_one_connection_serves_requests_in_a_row(self):
        async with peer([OK], [CHUNKED], [OK]) as server, client_to(server.port) as client:
            for _ in range(3):
                await text(client)
            assert (server.accepted, len(client)) == (1, 1)

    async def test_requests_at_the_same_time_have_connections_of_their_own(self):
        slow = [OK[:20], 0.05, OK[20:]]
        async with peer(*([slow] * 4)) as server, client_to(server.port) as client:
            assert await asyncio.gather(*(text(client) for _ in range(4))) == [b"hello"] * 4
            assert server.accepted == 4

    async def test_one_that_the_engine_has_closed_meanwhile_is_not_used(self):
        async with peer([OK, Peer.CLOSE], [OK]) as server, client_to(server.port) as client:
            await text(client)
            await asyncio.sleep(0.02)
            assert await text(client) == b"hello"
            assert server.accepted == 2

    async def test_one_that_the_engine_closes_on_the_request_costs_one_more_attempt(self):
        async with peer([OK], [Peer.CLOSE], [OK]) as server, client_to(server.port) as client:
            await text(client)
            assert await text(client) == b"hello"
            assert [len(server.requests), server.accepted] == [3, 2]

    async def test_a_new_one_that_is_closed_is_an_error(self):
        async with peer([Peer.CLOSE], [OK]) as server, client_to(server.port) as client:
            with pytest.raises(BrokenExchange):
                await text(client)

    async def test_connection_close_is_honoured(self):
        closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        async with peer([closing], [OK]) as server, client_to(server.port) as client:
            await text(client)
            await text(client)
            assert server.accepted == 2

    async def test_words_nobody_asked_for_end_the_connection(self):
        async with peer([OK, b"HTTP/1.1 200 OK\r\n\r\n", 0.1], [OK]) as server, client_to(server.port) as client:
            await text(client)
            await asyncio.sleep(0.05)
            assert len(client) == 0

    async def test_a_body_is_not_lost_to_the_next_request(self):
        async with peer([OK], [CHUNKED]) as server, client_to(server.port) as client:
            first = await client.request("POST", "/x")
            await asyncio.sleep(0.02)
            assert await text(client) == b"hello"
            assert await first.whole(LIMIT) == b"hello"


class TestFlowControl:
    async def test_nothing_is_read_while_nobody_takes_it(self):
        size = 64 << 20
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
        blocks = [bytes(1 << 16)] * (size >> 16)
        async with peer([head, *blocks]) as server, client_to(server.port) as client:
            response = await client.request("POST", "/x")
            await asyncio.sleep(0.2)
            stuck = server.sent
            # What the kernel takes on both sides, and our own high-water mark.
            assert stuck < size / 2
            await asyncio.sleep(0.05)
            assert server.sent == stuck
            first = await response.read()
            assert HIGH_WATER <= len(first) < HIGH_WATER + (1 << 20)
            rest = 0
            while data := await response.read():
                rest += len(data)
            assert len(first) + rest == size

    async def test_closing_tells_the_engine_at_once(self):
        async with peer([CHUNKED[:60], 30]) as server, client_to(server.port) as client:
            response = await client.request("POST", "/x")
            assert await response.read() == b"hello"
            response.close()
            response.close()
            assert await response.read() == b""
            assert len(client) == 0

    async def test_cancelling_before_the_head_closes_the_connection(self):
        async with peer([30]) as server, client_to(server.port) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.request("POST", "/x"), 0.05)
            assert len(client) == 0


class TestBreaks:
    @pytest.mark.parametrize(
        "answer",
        [
            OK[:30],
            OK[:-2],
            CHUNKED[:60],
            b"hello there\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        ],
        ids=["in-the-head", "short-of-length", "no-last-chunk", "no-http", "no-chunk"],
    )
    async def test_a_cut_answer_is_never_a_whole_one(self, answer):
        async with peer([answer, Peer.CLOSE]) as server, client_to(server.port) as client:
            with pytest.raises(BrokenExchange):
                await text(client)
            assert len(client) == 0

    async def test_what_came_before_the_break_is_still_read(self):
        async with peer([CHUNKED[:60], 0.02, Peer.CLOSE]) as server, client_to(server.port) as client:
            response = await client.request("POST", "/x")
            assert await response.read() == b"hello"
            with pytest.raises(BrokenExchange):
                await response.read()

    async def test_an_answer_that_is_too_long(self):
        async with peer([OK]) as server, client_to(server.port) as client:
            with pytest.raises(BrokenExchange, match="more than 4 bytes"):
                await (await client.request("POST", "/x")).whole(4)

    async def test_nobody_listens(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            async with client_to(taken.getsockname()[1]) as client:
                with pytest.raises(Unreachable):
                    await client.request("GET", "/")

    async def test_a_connection_that_does_not_come_about_in_time(self):
        # A full backlog: the kernel answers no further SYN.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            port = full.getsockname()[1]
            waiting = [socket.socket() for _ in range(4)]
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            async with client_to(port, connect_secs=0.1) as client:
                with pytest.raises(Unreachable) as caught:
                    await client.request("GET", "/")
            assert isinstance(caught.value.__cause__, TimeoutError)
            for each in waiting:
                each.close()


async def test_tls(tmp_path):
    files = self_signed(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["tls_cert_path"], files["tls_key_path"])
    async with peer([CHUNKED], [OK], ssl=context) as server:
        trusted = ssl.create_default_context(cafile=files["tls_cert_path"])
        client = HttpClient(HttpAddress("localhost", server.port, True), tls=trusted)
        assert await text(client) == b"hello"
        assert await text(client) == b"hello"
        client.close()
        suspicious = HttpClient(HttpAddress("localhost", server.port, True))
        with pytest.raises(Unreachable):
            await text(suspicious)
