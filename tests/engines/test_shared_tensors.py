"""Tensors by files of shared memory: which go there, that they arrive, and that no file outlives its request (spec
multimodal 13, engine-contract 2.13)."""

import asyncio
import errno
import logging
import os
import threading

import grpc
import pytest

from smg.core import background, shared_memory
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.engine_server.mock import Fault, MockEngine, Script
from smg.engines import parcel as parcels
from smg.engines.parcel import INLINE, TensorTransport
from smg.engines.table import ADAPTERS, adapter
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from tests.engines.contracts import driver_to

PIXELS = Tensor("float32", (40, 10), (bytes(range(250)) * 4, bytes(600)))
GRID = Tensor("int64", (1, 3), (bytes(24),))
MASK = Tensor("bool", (40, 5), (bytes([1]) * 200,))
ITEM = MediaItem("image", "01ff" * 16, b"", (0, 4), ((1, 2),), PIXELS, {"grid": GRID, "mask": MASK})
INPUTS = MediaInputs([ITEM], PIXELS, {"grid": GRID, "mask": MASK}, "", (), 7, [1], 4, flat=("mask",))
# The tensors that are worth a file when this is the least.
LEAST = 200
SHARING = [name for name, kind in ADAPTERS.items() if kind.shared_memory]


class World:
    """A transport of tensors that counts, in a directory of its own."""

    def __init__(self, directory, mode="shm", least=LEAST):
        self.directory = directory
        self.metrics = Metrics(LocalCells(), 0)
        self.tensors = TensorTransport(mode, least, self.metrics)

    def files(self):
        """Names of the files with tensors."""
        return [path.name for path in self.directory.iterdir() if not path.name.endswith("owner")]

    def counted(self):
        """Counts of tensors and bytes by path, and of failures, in one mapping."""
        series = self.metrics.cells.read_series()
        found = {tuple(key.decode().split("\0")): value for key, _, value in series if b"mm_" in key and value}
        return {(name.removeprefix("smg_mm_"), *labels): value for (name, *labels), value in found.items()}

    async def empty(self):
        """Wait until no file is left."""
        async with asyncio.timeout(5):
            while self.files():  # noqa: ASYNC110 - a file system has no event
                await asyncio.sleep(0.01)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_memory, "DIRECTORY", tmp_path)
    return World(tmp_path)


@pytest.fixture(params=[GrpcioTokenTransport, H2Transport], ids=["grpcio", "native"])
def transport(request):
    return request.param


def read(request):
    """The bytes of all tensors that an engine has read, by name."""
    inputs = request.mm_inputs
    [holder] = getattr(inputs, "items", [inputs])
    primary = holder.encoder_input if hasattr(holder, "encoder_input") else holder.pixel_values
    sides = holder.model_specific_tensors
    assert (list(primary.shape), primary.dtype) == ([40, 10], "float32")
    return {"pixels": primary.inline, **{name: sides[name].inline for name in ("grid", "mask")}}


class TestWhichWay:
    @pytest.mark.parametrize(
        ("mode", "labels", "shared"),
        [
            ("inline", {}, False),
            ("shm", {}, True),
            ("shm", {"multimodal_tensor_transport": "inline"}, False),
            ("inline", {"multimodal_tensor_transport": "shm"}, True),
            ("auto", {}, False),
            ("auto", {"shm_namespace_id": "another:1"}, False),
            ("auto", {"shm_namespace_id": "{ours}"}, True),
            ("inline", {"multimodal_tensor_transport": "auto", "shm_namespace_id": "{ours}"}, True),
            ("shm", {"multimodal_tensor_transport": "rdma"}, False),
            ("shm", {"multimodal_shm_min_bytes": "1600"}, True),
            ("shm", {"multimodal_shm_min_bytes": "1601"}, False),
            ("shm", {"multimodal_shm_min_bytes": "many"}, True),
        ],
    )
    def test_a_workers_labels_win_over_the_settings(self, world, mode, labels, shared):
        told = {name: value.format(ours=shared_memory.namespace_id()) for name, value in labels.items()}
        parcel = TensorTransport(mode, LEAST).parcel(adapter("vllm"), told)
        handle = parcel.put(PIXELS)
        assert (handle is not None) is shared
        assert len(world.files()) == shared

    def test_labels_of_no_use_are_told_once(self, world, caplog):
        odd = {"multimodal_tensor_transport": "rdma"}
        for labels in (odd, odd, {"multimodal_shm_min_bytes": "-1"}):
            world.tensors.parcel(adapter("vllm"), labels)
        assert [record.getMessage() for record in caplog.records] == [
            "the label multimodal_tensor_transport of a worker is 'rdma', not inline, shm or auto",
            "the label multimodal_shm_min_bytes of a worker is '-1', not a number of bytes",
        ]

    @pytest.mark.parametrize("contract", sorted(set(ADAPTERS) - set(SHARING)))
    def test_contracts_without_a_place_for_it_get_bytes(self, world, contract):
        assert world.tensors.parcel(adapter(contract), {}).put(PIXELS) is None
        assert world.files() == []

    def test_handles_name_the_whole_file_and_its_owner(self, world):
        handle = world.tensors.parcel(adapter("vllm"), {}).put(PIXELS)
        assert (handle.offset, handle.nbytes, handle.owner_id) == (0, 1600, f"smg:{os.getpid()}")
        assert (world.directory / handle.name).read_bytes() == PIXELS.tobytes()

    def test_sglang_is_asked_for_bytes_by_all_ways(self, world, kit):
        request = kit.request(media=INPUTS)
        parcel = world.tensors.parcel(adapter("sglang"), {})
        assert adapter("sglang").generate(request, parcel) == adapter("sglang").generate(request, INLINE)
        assert world.counted() == {
            ("tensors_total", "sglang", "inline"): 3,
            ("tensor_bytes_total", "sglang", "inline"): 1824,
        }


@pytest.mark.parametrize("contract", SHARING)
class TestArriving:
    async def test_an_engine_reads_the_same_tensors_by_either_way(self, world, contract, kit, transport):
        async with (
            MockEngine(Script(tokens=[5, 6], eos=False), contract=contract) as engine,
            driver_to(engine.url, contract, transport, tensors=world.tensors) as shared,
            driver_to(engine.url, contract, transport) as inline,
        ):
            for driver in (shared, inline):
                await kit.drain(await driver.open(RequestContext("r"), kit.request(media=INPUTS)))
            by_file, by_message = (entry.request for entry in engine.requests)
            assert (
                read(by_file)
                == read(by_message)
                == {
                    "pixels": PIXELS.tobytes(),
                    "grid": GRID.tobytes(),
                    "mask": MASK.tobytes(),
                }
            )
            assert by_file == by_message
            assert sorted(handle.nbytes for handle in engine.requests[0].shared) == [200, 1600]
            assert engine.requests[1].shared == []
        await world.empty()
        assert world.counted() == {
            ("tensors_total", contract, "shm"): 2,
            ("tensor_bytes_total", contract, "shm"): 1800,
            ("tensors_total", contract, "inline"): 1,
            ("tensor_bytes_total", contract, "inline"): 24,
        }

    async def test_the_files_an_engine_leaves_go_with_its_first_tokens(self, world, contract, kit, transport):
        script = Script(tokens=[5, 6, 7], eos=False, unlinks=False, faults=(Fault(kind="stall", after_chunks=1),))
        async with (
            MockEngine(script, contract=contract) as engine,
            driver_to(engine.url, contract, transport, tensors=world.tensors) as driver,
        ):
            source = await driver.open(RequestContext("r"), kit.request(media=INPUTS))
            assert len(world.files()) == 2
            assert (await source.next())[0].ids == [5]
            await world.empty()
            await source.cancel("client_disconnect")


@pytest.mark.parametrize("contract", SHARING)
class TestNothingStays:
    async def test_a_request_that_is_cancelled_before_the_engine_has_read_it(self, world, contract, kit, transport):
        ctx = RequestContext("r")
        async with (
            MockEngine(Script(faults=(Fault(kind="stall"),)), contract=contract) as engine,
            driver_to(engine.url, contract, transport, tensors=world.tensors) as driver,
        ):
            await driver.open(ctx, kit.request(media=INPUTS))
            await kit.eventually(lambda: engine.requests)
            assert len(world.files()) == 2
            ctx.cancel.cancel("client_disconnect")
            await world.empty()

    async def test_one_that_the_engine_refuses(self, world, contract, kit, transport):
        faults = (Fault(status=grpc.StatusCode.RESOURCE_EXHAUSTED),)
        async with (
            MockEngine(Script(faults=faults), contract=contract) as engine,
            driver_to(engine.url, contract, transport, tensors=world.tensors) as driver,
        ):
            source = await driver.open(RequestContext("r"), kit.request(media=INPUTS))
            with pytest.raises(GatewayError):
                await source.next()
            await world.empty()

    async def test_one_for_an_engine_that_is_not_there(self, world, contract, kit, transport):
        async with driver_to("grpc://127.0.0.1:1", contract, transport, tensors=world.tensors) as driver:
            source = await driver.open(RequestContext("r"), kit.request(media=INPUTS))
            with pytest.raises(GatewayError):
                await source.next()
            await world.empty()

    async def test_one_that_is_too_large_all_the_same(self, world, contract, kit, transport):
        more = {"tensors": world.tensors, "message_limit": 4096}
        async with driver_to("grpc://127.0.0.1:1", contract, transport, **more) as driver:
            with pytest.raises(GatewayError, match="4096"):
                await driver.open(RequestContext("r"), kit.request(ids=[1] * 5000, media=INPUTS))
            await world.empty()

    async def test_one_whose_client_leaves_while_its_files_are_written(
        self, world, contract, kit, transport, monkeypatch
    ):
        filling, go = threading.Event(), threading.Event()
        fill = shared_memory.fill

        def slowly(descriptor, pieces):
            filling.set()
            go.wait(10)
            fill(descriptor, pieces)

        monkeypatch.setattr(shared_memory, "fill", slowly)
        async with driver_to("grpc://127.0.0.1:1", contract, transport, tensors=world.tensors) as driver:
            opening = asyncio.ensure_future(driver.open(RequestContext("r"), kit.request(media=INPUTS)))
            await asyncio.to_thread(filling.wait, 10)
            assert len(world.files()) == 1
            opening.cancel()
            await asyncio.wait([opening])
            await world.empty()
            go.set()
            # What the thread would still have written comes to nothing.
            await background.background(lambda: None)
            assert world.files() == []

    async def test_what_is_left_when_the_process_ends(self, world, contract):
        parcel = world.tensors.parcel(adapter(contract), {})
        assert parcel.put(PIXELS) is not None
        world.tensors.close()
        assert list(world.directory.iterdir()) == []
        # Later ones go in their messages.
        assert parcel.put(PIXELS) is None


class TestEncoders:
    @pytest.mark.parametrize("faults", [(), (Fault(rpc="Encode"),)], ids=["accepted", "failed"])
    async def test_an_item_goes_by_file_and_no_file_stays(self, world, transport, faults):
        async with (
            MockEngine(Script(faults=faults, unlinks=False), contract="tokenspeed", role="encode") as engine,
            driver_to(engine.url, "tokenspeed", transport, tensors=world.tensors) as driver,
        ):
            try:
                await driver.encode(RequestContext("r"), "r-1", ITEM, 7, 5)
                [item] = engine.encoded[0].mm_inputs.items
                assert item.encoder_input.inline == PIXELS.tobytes()
            except GatewayError:
                assert faults
            await world.empty()
        assert world.counted()["tensors_total", "tokenspeed", "shm"] == 2


class TestNoRoom:
    @pytest.fixture
    def full(self, monkeypatch):
        def refuse(descriptor, start, size):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", refuse)

    @pytest.mark.parametrize("contract", SHARING)
    async def test_tensors_that_find_no_room_go_in_their_message_and_are_counted(
        self, world, contract, kit, full, caplog
    ):
        parcel = world.tensors.parcel(adapter(contract), {})
        request = kit.request(media=INPUTS)
        assert adapter(contract).generate(request, parcel) == adapter(contract).generate(request, INLINE)
        assert world.files() == []
        assert world.counted() == {
            ("tensors_total", contract, "inline"): 3,
            ("tensor_bytes_total", contract, "inline"): 1824,
            ("shm_write_failures_total", contract): 2,
        }
        # The log says it once, however many there are.
        [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert line.error == "No space left on device"

    def test_without_shared_memory_all_go_in_their_messages_and_the_log_says_so_once(self, world, monkeypatch, caplog):
        monkeypatch.setattr(shared_memory, "DIRECTORY", world.directory / "none")
        for _ in range(2):
            assert world.tensors.parcel(adapter("vllm"), {}).put(PIXELS) is None
        assert [record.getMessage() for record in caplog.records] == ["no shared memory: tensors go in messages"]


def test_by_default_they_go_in_messages():
    assert TensorTransport().parcel(adapter("vllm"), {}).put(Tensor("uint8", (1 << 20,), (bytes(1 << 20),))) is None
    assert parcels.MIN_BYTES == 64 << 10
