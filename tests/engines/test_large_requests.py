"""Large requests leave grpcio for a connection that does not copy them on the event loop (case PF-01)."""

import grpc
import pytest

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engine_server.mock import Fault, MockEngine, Script
from smg.engines.driver import GrpcDriver
from smg.engines.transport import h2_connection
from smg.engines.transport.grpcio_call import GrpcioCall
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import LARGE
from smg.engines.transport.h2_call import H2Call
from smg.engines.vllm.adapter import VllmAdapter
from smg.engines.vllm.decode import VllmDecoder
from tests.calls import failure, read_all

BIG = bytes(range(256)) * (LARGE // 256)
PATH = "/t.T/Size"


@pytest.fixture
async def connect():
    opened = []

    def make(url, **options):
        opened.append(GrpcioTokenTransport(url, **options))
        return opened[-1]

    yield make
    for transport in opened:
        await transport.close()


async def Size(request, context):
    """Answers with what it got, and says on which connection."""
    yield b"%d on %s" % (len(request), context.peer().encode())


async def Echo(request, context):
    return request


def generate(transport, message):
    return transport.generate(PATH, message, 5, layout=VllmDecoder.layout)


async def by_grpcio(transport, message) -> bool:
    """Whether grpcio carries such a request; it is answered whole either way."""
    call = generate(transport, message)
    [answer] = await read_all(call)
    assert answer.startswith(b"%d on " % len(message))
    assert isinstance(call, GrpcioCall | H2Call)
    return isinstance(call, GrpcioCall)


async def until_connected(kit, transport):
    assert await by_grpcio(transport, BIG)  # the first does not wait for a connection
    await kit.eventually(lambda: transport._own.connected)


async def test_large_requests_have_a_connection_of_their_own_once_it_stands(kit, connect):
    async with kit.serve("t.T", Size=Size) as address:
        transport = connect(address)
        assert await by_grpcio(transport, BIG[:-1])
        assert not transport._own._connections
        await until_connected(kit, transport)
        assert not await by_grpcio(transport, BIG)
        assert not await by_grpcio(transport, BIG * 100)
        assert await by_grpcio(transport, BIG[:-1])


async def test_rows_are_offered_the_same_way_on_both(kit, connect):
    async with kit.serve("t.T", Size=Size) as address:
        transport = connect(address)
        await until_connected(kit, transport)
        for message in (BIG, b""):
            assert hasattr(generate(transport, message), "feed_rows")


async def test_unary_calls_too(kit, connect):
    async def Refuse(request, context):
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no encoder")

    async def Peer(request, context):
        return context.peer().encode()

    async with kit.serve("t.T", Size=Size, Echo=Echo, Refuse=Refuse, Peer=Peer) as address:
        transport = connect(address)
        small = await transport.unary("/t.T/Peer", b"", 5)
        assert await transport.unary("/t.T/Peer", BIG, 5) == small
        await kit.eventually(lambda: transport._own.connected)
        assert await transport.unary("/t.T/Peer", BIG, 5) != small
        assert await transport.unary("/t.T/Echo", BIG * 100, 5) == BIG * 100
        for message in (b"", BIG):
            with pytest.raises(GatewayError) as caught:
                await transport.unary("/t.T/Refuse", message, 5)
            assert (caught.value.status, caught.value.code) == (501, "not_implemented")


async def test_a_unary_answer_is_one_message(kit, connect):
    async def Two(request, context):
        yield b"one"
        yield b"two"

    async with kit.serve("t.T", Size=Size, Two=Two) as address:
        transport = connect(address)
        await until_connected(kit, transport)
        with pytest.raises(GatewayError) as caught:
            await transport.unary("/t.T/Two", BIG, 5)
        assert caught.value.status == 502


async def test_an_engine_that_only_grpcio_reaches_gets_everything_by_grpcio(kit, connect, monkeypatch):
    tries = 0

    async def refuse(*_):
        nonlocal tries
        tries += 1
        raise OSError("only a proxy goes there")

    monkeypatch.setattr(h2_connection, "connect", refuse)
    async with kit.serve("t.T", Size=Size) as address:
        transport = connect(address)
        for count in range(1, 4):
            assert await by_grpcio(transport, BIG)
            await kit.eventually(lambda count=count: tries == count)
            await kit.eventually(lambda: not transport._own._connections)


async def test_a_connection_that_broke_is_made_anew(kit, connect):
    async with kit.serve("t.T", Size=Size) as address:
        transport = connect(address)
        await until_connected(kit, transport)
    await kit.eventually(lambda: not transport._own.connected)
    assert (await failure(generate(transport, BIG))).status == 503
    async with kit.serve("t.T", address, Size=Size):

        async def answered() -> bool:
            try:
                return not await by_grpcio(transport, BIG)
            except GatewayError:
                return False

        while not await answered():
            pass


async def test_tls_is_left_to_grpcio(connect):
    assert connect("grpcs://localhost:1")._own is None


async def test_closing_ends_running_calls_on_either(kit, connect):
    async def Stall(request, context):
        while True:
            yield b"more"

    async with kit.serve("t.T", Size=Size, Stall=Stall) as address:
        transport = connect(address)
        await until_connected(kit, transport)
        calls = [transport.generate("/t.T/Stall", message, None, layout=VllmDecoder.layout) for message in (b"", BIG)]
        for call in calls:
            assert await call.read()
        await transport.close()
        for call in calls:
            assert (await failure(call)).code == "worker_stream_failed"
        assert not transport._own.connected
        with pytest.raises(GatewayError):
            generate(transport, BIG)


@pytest.fixture
async def large(kit):
    """An engine, a driver whose own connection stands, and a request with a long prompt."""
    async with MockEngine(Script(tokens=[7] * 5, eos=False, vocab_size=100_000)) as engine:
        transport = GrpcioTokenTransport(engine.url)
        driver = GrpcDriver(engine.url, VllmAdapter(), transport)
        request = kit.request(id="r-1", ids=[70_000] * 25_000)
        batches = await kit.drain(await driver.open(RequestContext("first"), request))
        assert sum(len(batch.ids) for batch in batches) == 5
        await kit.eventually(lambda: transport._own.connected)
        yield engine, driver, request
        await driver.close()


async def test_a_long_prompt_arrives_whole_and_is_answered(kit, large):
    engine, driver, request = large
    source = await driver.open(RequestContext("second"), request)
    assert isinstance(source._call, H2Call)
    assert [token for batch in await kit.drain(source) for token in batch.ids] == [7] * 5
    assert list(engine.requests[-1].request.tokenized.input_ids) == request.ids


async def test_an_engine_that_breaks_off_under_one_is_to_blame(kit, large):
    engine, driver, request = large
    engine.script = Script(tokens=[7] * 5, vocab_size=100_000, faults=(Fault(after_chunks=2),))
    source = await driver.open(RequestContext("second"), request)
    assert isinstance(source._call, H2Call)
    with pytest.raises(GatewayError) as caught:
        await kit.drain(source)
    assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)


async def test_a_client_that_leaves_stops_the_engine_there_too(kit, large):
    engine, driver, request = large
    engine.script = Script(tokens=[7] * 5, vocab_size=100_000, faults=(Fault(kind="stall", after_chunks=1),))
    source = await driver.open(RequestContext("second"), request)
    assert (await source.next())[0].ids == [7]
    await source.cancel("client_disconnect")
    await kit.eventually(lambda: engine.aborted == ["r-1"] and engine.running == 0)
