"""TLS to engines: whom a transport talks to, what it agrees on first, and what becomes of the connection (DESIGN 6)."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.transport.h2_connection import Timing
from tests import h2_peer as h2
from tests.calls import failure, read_all
from tests.certificates import expired, self_signed

PATH = "/t.T/Stream"


@pytest.fixture(params=[GrpcioTransport, H2Transport], ids=["grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture
async def connect(transport):
    """``connect(address, files)``: a transport that trusts the certificate of these files."""
    async with contextlib.AsyncExitStack() as stack:

        def connect(address, files, **options):
            made = transport(f"grpcs://{address}", Path(files["tls_cert_path"]).read_bytes(), **options)
            stack.push_async_callback(made.close)
            return made

        yield connect


only_native = pytest.mark.parametrize("transport", [H2Transport], ids=["native"])


@contextlib.asynccontextmanager
async def serving(files, script=h2.answering, offers: Sequence[str] | None = ("h2",)) -> AsyncIterator[str]:
    """A scripted peer with TLS that offers these protocols by ALPN (None: it does not know ALPN)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["tls_cert_path"], files["tls_key_path"])
    if offers is not None:
        context.set_alpn_protocols(list(offers))
    async with h2.serve_raw(script, ssl=context) as address:
        yield address


class TestWhomItTalksTo:
    async def test_one_whose_certificate_it_trusts(self, tmp_path, connect):
        files = self_signed(tmp_path)
        async with serving(files) as address:
            assert await read_all(connect(address, files).stream(PATH, b"hello", 5)) == [b"hello"]

    @pytest.mark.parametrize("names", ["DNS:engine.example", "IP:127.0.0.2"])
    async def test_nobody_with_a_certificate_for_another_name(self, tmp_path, connect, names):
        files = self_signed(tmp_path, names)
        async with serving(files) as address:
            await self.refused(connect(address, files))

    async def test_nobody_whose_certificate_has_expired(self, tmp_path, connect):
        files = expired(tmp_path)
        async with serving(files) as address:
            await self.refused(connect(address, files))

    async def test_the_authority_that_grpcio_is_told_of(self, tmp_path, monkeypatch):
        files = self_signed(tmp_path)
        async with serving(files) as address, contextlib.AsyncExitStack() as stack:
            for path, trusts in ((None, False), (files["tls_cert_path"], True)):
                if path:
                    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", path)
                made = H2Transport(f"grpcs://{address}")
                stack.push_async_callback(made.close)
                if trusts:
                    assert await read_all(made.stream(PATH, b"hello", 5)) == [b"hello"]
                else:
                    await self.refused(made)

    async def refused(self, transport):
        error = await failure(transport.stream(PATH, b"secret", 5))
        assert (error.status, error.rpc, error.worker_fault, error.retryable) == (503, "UNAVAILABLE", True, True)
        # A client learns nothing of certificates.
        assert error.message == "the engine is not reachable"


class TestWhatIsAgreedOn:
    @pytest.mark.parametrize("offers", [None, ["http/1.1"]], ids=["no-alpn", "other-alpn"])
    async def test_without_http_2_by_alpn_nothing_is_said(self, tmp_path, connect, offers):
        files = self_signed(tmp_path)
        heard = []

        async def script(session):
            heard.append(await session.reader.read(100))

        async with serving(files, script, offers) as address:
            error = await failure(connect(address, files).stream(PATH, b"secret", 5))
            assert (error.status, error.rpc) == (503, "UNAVAILABLE")
        assert not any(heard)

    @only_native
    async def test_the_log_says_what_is_missing(self, tmp_path, connect):
        files = self_signed(tmp_path)
        async with serving(files, offers=None) as address:
            error = await failure(connect(address, files).stream(PATH, b"", 5))
        assert "does not offer HTTP/2" in error.detail

    @only_native
    async def test_a_handshake_that_does_not_end(self, tmp_path, connect):
        async def script(session):
            await session.reader.read()

        async with h2.serve_raw(script) as address:
            made = connect(address, self_signed(tmp_path), timing=Timing(connect=0.1))
            error = await failure(made.stream(PATH, b"", 5))
        assert (error.rpc, "took too long" in error.detail) == ("UNAVAILABLE", True)

    @only_native
    async def test_keys_are_not_negotiated_anew(self, tmp_path, connect):
        """HTTP/2 forbids it (RFC 9113, 9.2.1); a server of TLS 1.2 could ask for it."""
        files = self_signed(tmp_path)
        server = await asyncio.create_subprocess_exec(
            *("openssl", "s_server", "-accept", "127.0.0.1:0", "-tls1_2", "-alpn", "h2", "-msg"),
            *("-cert", files["tls_cert_path"], "-key", files["tls_key_path"]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(20):
                await server.stdout.readuntil(b"ACCEPT 127.0.0.1:")
                port = int(await server.stdout.readline())
                call = connect(f"127.0.0.1:{port}", files).stream(PATH, b"", 15)
                # The client's preface is what the program prints first of the connection's content.
                await server.stdout.readuntil(b"PRI * HTTP/2.0")
                server.stdin.write(h2.settings())
                await server.stdin.drain()
                await asyncio.sleep(0.2)
                server.stdin.write(b"r\n")
                await server.stdout.readuntil(b"HelloRequest")
                said = b""
                while b"ClientHello" not in said and b"no_renegotiation" not in said:
                    said = await server.stdout.readline()
                assert b"no_renegotiation" in said
                call.cancel()
        finally:
            server.kill()
            await server.communicate()


class TestLives:
    @pytest.mark.parametrize(
        ("transport", "end"),
        # grpcio waits for the socket to be closed, too, which a server may do half a minute later.
        [(GrpcioTransport, "abort"), (H2Transport, "abort"), (H2Transport, "close")],
        ids=["grpcio-abort", "native-abort", "native-close"],
        indirect=["transport"],
    )
    async def test_what_was_said_before_the_end_is_delivered(self, tmp_path, connect, end):
        files = self_signed(tmp_path)
        heard = asyncio.Event()

        async def script(session):
            await session.greet()
            stream = (await session.request()).stream
            session.send(h2.headers(stream), h2.data(stream, h2.message(b"one")))
            await heard.wait()
            getattr(session.writer.transport, end)()

        async with serving(files, script) as address:
            call = connect(address, files).stream(PATH, b"", 5)
            assert await call.read() == [b"one"]
            heard.set()
            assert (await failure(call)).code == "worker_stream_failed"

    @only_native
    async def test_silence_is_asked_about_and_then_ended(self, tmp_path, connect):
        files, pings = self_signed(tmp_path), []
        async with serving(files, h2.answering_pings(2, pings)) as address:
            made = connect(address, files, timing=Timing(keepalive=0.05, answer=0.2))
            error = await failure(made.stream(PATH, b"", None))
        assert (error.rpc, len(pings), "pings" in error.detail) == ("UNAVAILABLE", 2, True)

    async def test_a_long_request_waits_for_a_peer_that_does_not_read(self, tmp_path, connect):
        files = self_signed(tmp_path)

        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 24})
            session.send(h2.window(0, 1 << 24))
            await asyncio.sleep(0.2)
            request = await session.request()
            session.send(h2.answer(request.stream, b"%d" % len(request.body)))
            await session.gone()

        async with serving(files, script) as address:
            made = connect(address, files)
            assert await read_all(made.stream(PATH, bytes(6 << 20), 20)) == [b"%d" % ((6 << 20) + 5)]

    @only_native
    async def test_a_peer_that_never_reads_holds_up_no_end(self, tmp_path, connect):
        files = self_signed(tmp_path)

        async def script(session):
            await session.greet({h2.INITIAL_WINDOW_SIZE: 1 << 30})
            session.send(h2.window(0, 1 << 30))
            await asyncio.Event().wait()

        async with serving(files, script) as address:
            made = connect(address, files, timing=Timing(keepalive=0.1, answer=0.1))
            calls = [made.stream(PATH, bytes(8 << 20), None) for _ in range(3)]
            for call in calls:
                assert (await failure(call)).rpc == "UNAVAILABLE"
            assert not made._connections
