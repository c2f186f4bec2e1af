"""What every transport does: sizes, back-pressure, ends, replacement (spec engine-contract 4.2; DESIGN 6)."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from smg.core.errors import GatewayError
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.vllm.decode import VllmDecoder
from tests.calls import failure, read_all
from tests.certificates import self_signed

MIB = 1 << 20


class Reading(GrpcioTokenTransport):
    """Reads chunks of tokens, though there are none here: what it does for any other message is what is tested."""

    def stream(self, path, message, timeout, metadata=None):
        return self.generate(path, message, timeout, metadata, layout=VllmDecoder.layout)


@pytest.fixture(params=[GrpcioTransport, Reading, H2Transport], ids=["python", "grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture
async def connect(transport):
    opened = []

    def make(url, **options):
        opened.append(transport(url, **options))
        return opened[-1]

    yield make
    for transport in opened:
        await transport.close()


async def ask(transport, path, message=b"", timeout=5, metadata=None):
    """The one message of a streamed answer."""
    [answer] = await read_all(transport.stream(path, message, timeout, metadata))
    return answer


async def test_bytes_pass_through_both_ways_beyond_4_mib(kit, connect):
    async def Echo(request, context):
        return request

    async def Flood(request, context):
        yield request
        yield b""
        yield request[: 5 * MIB]

    big = bytes(range(256)) * (6 * MIB // 256)
    async with kit.serve("t.T", Echo=Echo, Flood=Flood) as address:
        transport = connect(address)
        assert await transport.unary("/t.T/Echo", big, 10) == big
        assert await read_all(transport.stream("/t.T/Flood", big, 10)) == [big, b"", big[: 5 * MIB]]


async def test_metadata_travels(kit, connect):
    async def Tell(request, context):
        yield dict(context.invocation_metadata())["traceparent"].encode()

    async with kit.serve("t.T", Tell=Tell) as address:
        assert await ask(connect(address), "/t.T/Tell", metadata={"traceparent": "00-ab"}) == b"00-ab"


async def test_deadlines_travel(kit, connect):
    async def Tell(request, context):
        yield b"%d" % round(context.time_remaining())

    async with kit.serve("t.T", Tell=Tell) as address:
        assert 90 <= int(await ask(connect(address), "/t.T/Tell", timeout=100)) <= 110


async def test_a_reader_that_does_not_come_stops_the_engine(kit, connect):
    sent = 0

    async def Flood(request, context):
        nonlocal sent
        for _ in range(400):
            yield bytes(16 << 10)
            sent += 1

    async with kit.serve("t.T", Flood=Flood) as address:
        transport = connect(address)
        call = transport.stream("/t.T/Flood", b"", None)
        await kit.eventually(lambda: sent >= 10)
        await asyncio.sleep(0.3)
        # Read-ahead, one HTTP/2 window and what the server queues itself: far from the 6 MiB on offer.
        assert sent < 150
        # Another stream on the same connection is not held up.
        other = transport.stream("/t.T/Flood", b"", None)
        assert len(await read_all(other)) == 400
        assert len(await read_all(call)) == 400


async def test_giving_up_a_read_loses_nothing(kit, connect):
    gate = asyncio.Event()

    async def Slow(request, context):
        await gate.wait()
        yield b"one"
        yield b"two"

    async with kit.serve("t.T", Slow=Slow) as address:
        call = connect(address).stream("/t.T/Slow", b"", None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call.read(), 0.05)
        gate.set()
        assert await read_all(call) == [b"one", b"two"]


async def test_messages_before_a_failure_are_delivered_first(kit, connect):
    async def Break(request, context):
        yield b"one"
        await context.abort(grpc.StatusCode.INTERNAL, "CUDA error in /opt/engine/kernel.py")

    async with kit.serve("t.T", Break=Break) as address:
        call = connect(address).stream("/t.T/Break", b"", None)
        assert await call.read() == [b"one"]
        with pytest.raises(GatewayError) as caught:
            await call.read()
        assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)
        assert "/opt" not in caught.value.message
        assert "/opt/engine/kernel.py" in caught.value.detail


async def test_cancelling_resets_the_stream_once(kit, connect):
    ended = []

    async def Stall(request, context):
        try:
            yield b"one"
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with kit.serve("t.T", Stall=Stall) as address:
        call = connect(address).stream("/t.T/Stall", b"", None)
        assert await call.read() == [b"one"]
        waiting = asyncio.create_task(call.read())
        await asyncio.sleep(0)
        call.cancel()
        call.cancel()
        with pytest.raises(GatewayError) as caught:
            await waiting
        assert not caught.value.worker_fault
        await kit.eventually(lambda: ended == ["cancelled"])


async def test_timeouts_and_refused_connections(kit, connect):
    async def Hang(request, context):
        await asyncio.Event().wait()

    async def Stall(request, context):
        yield b"one"
        await asyncio.Event().wait()

    async with kit.serve("t.T", Hang=Hang, Stall=Stall) as address:
        transport = connect(address)
        with pytest.raises(GatewayError) as caught:
            await transport.unary("/t.T/Hang", b"", 0.1)
        for error in (caught.value, await failure(transport.stream("/t.T/Stall", b"", 0.1))):
            assert (error.status, error.code) == (504, "upstream_timeout")
    with pytest.raises(GatewayError) as caught:
        await connect(address).unary("/t.T/Hang", b"", 5)
    for error in (caught.value, await failure(connect(address).stream("/t.T/Stall", b"", 5))):
        assert error.status == 503
        assert address not in error.message


async def test_a_method_that_is_not_there(kit, connect):
    async with kit.serve("t.T") as address:
        error = await failure(connect(address).stream("/t.T/None", b"", 5))
        assert (error.status, error.code, error.worker_fault) == (501, "not_implemented", False)


async def test_three_unavailable_in_a_row_replace_the_connection(kit, connect):
    calls = []

    async def Busy(request, context):
        calls.append(context.peer())
        if request != b"ok":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "saturated")
        yield b"ok"

    async with kit.serve("t.T", Busy=Busy) as address:
        transport = connect(address)
        for message in (b"", b"", b"ok", b"", b"", b"", b"ok"):
            try:
                await ask(transport, "/t.T/Busy", message)
            except GatewayError as error:
                assert error.status == 503
        assert len(set(calls[:6])) == 1  # a success in between starts the count anew
        assert calls[6] != calls[5]


async def test_a_restarted_engine_is_found_again(kit, connect):
    async def Echo(request, context):
        yield request

    async with kit.serve("t.T", Echo=Echo) as address:
        transport = connect(address)
        assert await ask(transport, "/t.T/Echo", b"1") == b"1"
    for _ in range(4):
        assert (await failure(transport.stream("/t.T/Echo", b"2", 5))).status == 503
    async with kit.serve("t.T", address, Echo=Echo):
        async with asyncio.timeout(5):
            while True:
                try:
                    assert await ask(transport, "/t.T/Echo", b"3") == b"3"
                    break
                except GatewayError:
                    await asyncio.sleep(0.05)


async def test_streams_beyond_128_get_a_second_connection(kit, connect):
    peers = set()
    gate = asyncio.Event()

    async def Hold(request, context):
        peers.add(context.peer())
        yield b""
        await gate.wait()

    async with kit.serve("t.T", Hold=Hold) as address:
        transport = connect(address)
        calls = [transport.stream("/t.T/Hold", b"", None) for _ in range(129)]
        await asyncio.gather(*(call.read() for call in calls))
        assert len(peers) == 2
        gate.set()
        assert await asyncio.gather(*(call.read() for call in calls)) == [[]] * 129


async def test_closing_ends_running_calls_without_cancelling_their_tasks(kit, connect):
    async def Hang(request, context):
        await asyncio.Event().wait()

    async def Stall(request, context):
        yield b"one"
        await asyncio.Event().wait()

    async with kit.serve("t.T", Hang=Hang, Stall=Stall) as address:
        transport = connect(address)
        call = transport.stream("/t.T/Stall", b"", None)
        assert await call.read() == [b"one"]
        unary = asyncio.create_task(transport.unary("/t.T/Hang", b"", 10))
        await asyncio.sleep(0.05)
        await transport.close()
        for waiting in (unary, call.read()):
            with pytest.raises(GatewayError):
                await waiting
        with pytest.raises(GatewayError):
            await transport.unary("/t.T/Hang", b"", 1)


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate for localhost and its key, as PEM files."""
    files = self_signed(tmp_path)
    return Path(files["tls_key_path"]).read_bytes(), Path(files["tls_cert_path"]).read_bytes()


@pytest.fixture
async def secure(certificate):
    """Port of a TLS server whose streams answer with what they are asked."""

    async def Echo(request, context):
        for at in range(0, len(request), MIB):
            yield request[at : at + MIB]

    async def Ask(request, context):
        return request

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    methods = {"Echo": grpc.unary_stream_rpc_method_handler(Echo), "Ask": grpc.unary_unary_rpc_method_handler(Ask)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", methods),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([certificate]))
    await server.start()
    yield port
    await server.stop(None)


async def test_tls(certificate, secure, connect):
    trusting = connect(f"grpcs://localhost:{secure}", root_certificates=certificate[1])
    assert await trusting.unary("/t.T/Ask", b"secret", 5) == b"secret"
    big = bytes(range(256)) * (6 * MIB // 256)
    for _ in range(2):
        assert b"".join(await read_all(trusting.stream("/t.T/Echo", big, 10))) == big


async def test_tls_with_a_stranger_or_without_tls(secure, connect):
    for url in (f"grpcs://localhost:{secure}", f"grpc://localhost:{secure}"):
        transport = connect(url)
        assert (await failure(transport.stream("/t.T/Echo", b"x", 5))).status == 503
        with pytest.raises(GatewayError) as caught:
            await transport.unary("/t.T/Ask", b"", 5)
        assert caught.value.status == 503
