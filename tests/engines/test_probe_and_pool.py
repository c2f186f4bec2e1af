"""Detection of the contract (spec engine-contract 4.1) and the drivers of one process."""

import asyncio

import grpc
import msgspec
import pytest

from smg.core import shared_memory
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.engine_server.mock import SERVICE, Fault, MockEngine, Script
from smg.engines.pool import DriverPool
from smg.engines.probe import detect
from smg.engines.table import ADAPTERS, adapter
from smg.engines.transport.errors import from_status
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.vllm.adapter import VllmAdapter


class OtherAdapter(VllmAdapter):
    """Another contract, as far as detection can tell."""

    name = "other"
    service = "other.Engine"


async def probe(url, *adapters, timeout=2.0):
    transport = GrpcioTransport(url)
    try:
        return await detect(transport, adapters or [VllmAdapter()], timeout)
    finally:
        await transport.close()


class TestDetection:
    @pytest.mark.parametrize("order", [(OtherAdapter, VllmAdapter), (VllmAdapter, OtherAdapter)])
    async def test_the_service_that_answers(self, order):
        async with MockEngine() as engine:
            assert await probe(engine.url, *(each() for each in order)) == "vllm"
            assert engine.calls["HealthCheck"] == 0
            assert engine.requests == []

    @pytest.mark.parametrize("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.FAILED_PRECONDITION])
    async def test_an_application_error_proves_that_the_service_is_there(self, status):
        async with MockEngine(Script(faults=(Fault(rpc="GetServerInfo", status=status),))) as engine:
            assert await probe(engine.url) == "vllm"

    @pytest.mark.parametrize("order", [(OtherAdapter, VllmAdapter), (VllmAdapter, OtherAdapter)])
    async def test_an_answer_counts_for_more_than_an_error(self, order):
        """Of a proxy that hides UNIMPLEMENTED, or has none of the engine's methods but an error page."""

        class BehindProxy(GrpcioTransport):
            async def unary(self, path, *args):
                if path.startswith(f"/{OtherAdapter.service}/"):
                    raise from_status("UNKNOWN", "Stream removed")
                return await super().unary(path, *args)

        async with MockEngine() as engine:
            transport = BehindProxy(engine.url)
            assert await detect(transport, [each() for each in order]) == "vllm"
            await transport.close()

    async def test_none_of_the_services(self, kit):
        async with kit.serve("some.Thing") as address:
            with pytest.raises(GatewayError) as caught:
                await probe(f"grpc://{address}")
        assert (caught.value.status, "none of the known" in caught.value.message) == (502, True)

    async def test_unavailable_and_silent_engines_prove_nothing(self):
        engine = MockEngine()
        address = await engine.start()
        await engine.stop()
        with pytest.raises(GatewayError) as caught:
            await probe(f"grpc://{address}")
        assert caught.value.status == 503
        async with MockEngine(Script(faults=(Fault(rpc="GetServerInfo", kind="stall"),))) as engine:
            with pytest.raises(GatewayError) as caught:
                await probe(engine.url, timeout=0.2)
        assert caught.value.status == 504

    def test_every_row_of_the_table_makes_its_adapter(self):
        for name in ADAPTERS:
            assert adapter(name).name == name
        assert adapter("vllm").service == SERVICE
        with pytest.raises(ValueError, match="unknown engine contract 'x'"):
            adapter("x")


class Worker(msgspec.Struct):
    id: str
    url: str = "grpc://127.0.0.1:1"
    runtime: str = "vllm"
    kind: str = "tokens"
    api_key: str = ""
    labels: dict = {}
    slot: int = 0


class TestPool:
    async def test_one_driver_per_worker_until_it_changes_or_leaves(self):
        pool = DriverPool()
        first = pool.get(Worker("a"))
        assert pool.get(Worker("a")) is first
        assert pool.get(Worker("b")) is not first
        moved = pool.get(Worker("a", url="grpc://127.0.0.1:2"))
        assert moved is not first
        pool.retain([Worker("b")])
        assert len(pool) == 1
        assert pool.get(Worker("a")) is not moved
        await pool.close()
        assert len(pool) == 0

    async def test_a_worker_s_new_labels_hold_for_its_driver(self, tmp_path, monkeypatch, kit, ctx):
        monkeypatch.setattr(shared_memory, "DIRECTORY", tmp_path)
        pixels = Tensor("uint8", (9,), (b"123456789",))
        item = MediaItem("image", "00" * 32, b"", (0, 1), ((0, 1),), pixels, {})
        media = MediaInputs([item], pixels, {}, "", (), 7, [], 1)
        async with MockEngine(Script(tokens=[1], eos=False)) as engine:
            pool = DriverPool()
            shm = {"multimodal_tensor_transport": "shm", "multimodal_shm_min_bytes": "1"}
            for labels in ({}, shm, {}):
                driver = pool.get(Worker("a", url=engine.url, labels=labels))
                await kit.drain(await driver.open(ctx, kit.request(media=media)))
            assert [len(entry.shared) for entry in engine.requests] == [0, 1, 0]
            await pool.close()
        assert list(tmp_path.iterdir()) == []

    async def test_a_worker_whose_contract_is_not_known_cannot_be_used(self):
        pool = DriverPool()
        for worker in (Worker("a", runtime=""), Worker("b", url="http://x:1")):
            with pytest.raises(GatewayError) as caught:
                pool.get(worker)
            assert caught.value.code == "no_available_workers"

    async def test_a_worker_that_leaves_finishes_what_runs(self, kit, ctx):
        async with MockEngine(Script(tokens=[1, 2, 3], eos=False, chunk_delay=0.05)) as engine:
            pool = DriverPool()
            source = await pool.get(Worker("a", url=engine.url)).open(ctx, kit.request())
            pool.retain([])
            batches = await kit.drain(source)
            assert [token for batch in batches for token in batch.ids] == [1, 2, 3]
            await asyncio.sleep(0)
            await pool.close()
