"""Messages of 3, 12 and 300 MiB under a limit of 256 MiB, to the engine and from it (case CF-02)."""

import grpc
import grpc.aio
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import Constraint
from smg.engine_server.mock import SERVICE, MockEngine, Script
from smg.engines.driver import GrpcDriver
from smg.engines.transport.base import MESSAGE_LIMIT
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.vllm.adapter import VllmAdapter
from tests.calls import failure, read_all

MIB = 1 << 20
assert MESSAGE_LIMIT == 256 * MIB


@pytest.fixture(params=[GrpcioTokenTransport, H2Transport], ids=["grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture
async def engine():
    async with MockEngine(Script(tokens=[10, 11], eos=False)) as engine:
        yield engine


async def fails(awaitable) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await awaitable
    return caught.value


def of_size(kit, size: int):
    """A request whose message has about ``size`` bytes."""
    return kit.request(constraint=Constraint("regex", "x" * size))


class TestToTheEngine:
    @pytest.mark.parametrize("mib", [3, 12])
    async def test_CF_02_what_fits_arrives(self, mib, engine, kit, transport):
        async with kit.driver(engine.url) as driver:
            source = await driver.open(RequestContext("r"), of_size(kit, mib * MIB))
            batches = await kit.drain(source)
        assert [token for batch in batches for token in batch.ids] == [10, 11]
        assert len(engine.requests[0].request.sampling_params.regex) == mib * MIB

    async def test_CF_02_300_mib_are_refused_before_they_are_sent(self, engine, kit, transport):
        async with kit.driver(engine.url) as driver:
            error = await fails(driver.open(RequestContext("r"), of_size(kit, 300 * MIB)))
            assert (error.code, error.status, error.retryable) == ("request_too_large", 413, False)
            assert str(MESSAGE_LIMIT) in error.message
            assert "--grpc-max-message-size" in error.message
            assert not error.worker_fault
            assert engine.requests == []

    async def test_CF_02_the_limit_is_a_setting(self, engine, kit, transport):
        driver = GrpcDriver(engine.url, VllmAdapter(), transport(engine.url), message_limit=4096)
        try:
            error = await fails(driver.open(RequestContext("r"), kit.request(ids=[1] * 5000)))
            assert "4096" in error.message
            source = await driver.open(RequestContext("r"), kit.request(ids=[1] * 3000))
            assert await source.next()
        finally:
            await driver.close()

    async def test_CF_02_a_refusal_by_the_engine_is_the_clients_and_not_retried(self, kit, transport):
        """An engine of gRPC's default limit, 4 MiB."""

        async def Generate(request, context):
            yield pb.GenerateResponse().SerializeToString()

        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        method = {"Generate": grpc.unary_stream_rpc_method_handler(Generate)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, method),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with kit.driver(f"grpc://127.0.0.1:{port}") as driver:
                source = await driver.open(RequestContext("r"), of_size(kit, 12 * MIB))
                error = await fails(source.next())
        finally:
            await server.stop(None)
        assert (error.code, error.status, error.retryable) == ("request_too_large", 413, False)
        assert str(4 * MIB) in error.message
        assert not error.worker_fault


class TestFromTheEngine:
    @pytest.mark.parametrize("mib", [3, 12])
    async def test_CF_02_what_fits_arrives(self, mib, kit, transport):
        async def Flood(request, context):
            yield bytes(mib * MIB)

        async with kit.serve("t.T", Flood=Flood) as address:
            made = transport(address)
            assert await read_all(made.stream("/t.T/Flood", b"", 30)) == [bytes(mib * MIB)]
            await made.close()

    @pytest.mark.parametrize("first", [b"", b"a message before"])
    async def test_CF_02_300_mib_end_the_call_with_413_that_names_the_limit(self, first, kit, transport):
        async def Flood(request, context):
            if first:
                yield first
            yield bytes(300 * MIB)

        async with kit.serve("t.T", Flood=Flood) as address:
            made = transport(address)
            error = await failure(made.stream("/t.T/Flood", b"", 30))
            await made.close()
        assert (error.code, error.status, error.retryable) == ("request_too_large", 413, False)
        assert "--grpc-max-message-size" in error.message
        assert not error.worker_fault

    async def test_CF_02_the_limit_is_a_setting_and_holds_for_unary_calls_too(self, kit, transport):
        async def Echo(request, context):
            return bytes(5 * MIB)

        async def Flood(request, context):
            yield bytes(5 * MIB)

        async with kit.serve("t.T", Echo=Echo, Flood=Flood) as address:
            small, large = transport(address, message_limit=4 * MIB), transport(address, message_limit=6 * MIB)
            assert (await fails(small.unary("/t.T/Echo", b"", 30))).code == "request_too_large"
            assert (await failure(small.stream("/t.T/Flood", b"", 30))).code == "request_too_large"
            assert len(await large.unary("/t.T/Echo", b"", 30)) == 5 * MIB
            assert len((await read_all(large.stream("/t.T/Flood", b"", 30)))[0]) == 5 * MIB
            await small.close()
            await large.close()
