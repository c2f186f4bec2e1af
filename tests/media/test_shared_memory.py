"""Tensors by shared memory, from the official client to engines on the same host (spec multimodal 13 and 18)."""

import asyncio
import contextlib
import os
import signal

import openai
import pytest
from msgspec.structs import replace

from smg.config.load import SettingsError
from smg.core.shared_memory import DIRECTORY
from smg.engine_server.mock.engine import MockEngine
from smg.engine_server.mock.script import Fault
from smg.vision.config import parse_config
from smg.vision.families.base import encode
from smg.vision.families.qwen_vl import Qwen2VL
from smg.vision.normalise import to_bfloat16
from tests.gateway import settings, until_async
from tests.media.models import QWEN, data_url, picture, png
from tests.media.test_end_to_end import EXPECTED, SIZES, ask, golden, image, mixed, started

pytestmark = pytest.mark.e2e
SMALL = image(data_url(png(224, 224)))


def files(worker):
    """Names of the files with tensors that the process with this id has written."""
    found = [path.name for path in DIRECTORY.glob(f"smg-mm-g*-{worker}-*")]
    return [name for name in found if not name.endswith("owner")]


@contextlib.asynccontextmanager
async def serving(contract, tmp_path, *flags):
    """An engine, a gateway before it, and the id of the gateway's worker process, of whose files none is left then."""
    flags = ("--multimodal-tensor-transport", "auto", "--shutdown-grace-period-secs", "0", *flags)
    async with MockEngine(QWEN.script("seen"), contract=contract) as engine:
        async with started(engine, tmp_path, *flags) as gateway:
            worker = gateway.child("worker-1")
            yield engine, gateway, worker
        assert not list(DIRECTORY.glob(f"smg-mm-g*-{worker}-*"))


async def unread(engine, gateway, worker):
    """A request whose tensor the engine has been sent, and does not read."""
    seen = len(engine.requests)
    task = asyncio.create_task(ask(gateway, SMALL))
    await until_async(lambda: len(engine.requests) > seen)
    assert len(files(worker)) == 1
    return task


async def test_tokenspeed_reads_each_images_own_tensor_from_a_file_of_its_own(tmp_path):
    async with serving("tokenspeed", tmp_path) as (engine, gateway, worker):
        await ask(gateway, *mixed())
        [entry] = engine.requests
        family = Qwen2VL(parse_config({}))
        for item, size in zip(entry.request.mm_inputs.items, SIZES, strict=True):
            exact = to_bfloat16(encode(family, [picture(*size)]).tensor)
            assert item.encoder_input.inline == exact.tobytes()
        assert len({handle.name for handle in entry.shared}) == 3
        await until_async(lambda: not files(worker))
        # An engine that has a request and never reads its files.
        engine.script = replace(engine.script, faults=(Fault(kind="stall"),))
        task = await unread(engine, gateway, worker)
        task.cancel()
        await until_async(lambda: not files(worker))
        last = await unread(engine, gateway, worker)
    # The gateway has stopped meanwhile.
    await asyncio.wait([last])
    assert isinstance(last.exception(), openai.APIError)


async def test_vllm_reads_the_golden_tensors_from_a_file_and_none_outlives_its_request_or_process(tmp_path):
    async with serving("vllm", tmp_path, "--engine-transport", "native", "--retry-max-retries", "2") as found:
        engine, gateway, worker = found
        answer = await ask(gateway, *mixed())
        assert answer.choices[0].message.content == "seen"
        [entry] = engine.requests
        sent = entry.request.mm_inputs
        assert golden(sent.pixel_values.inline) == EXPECTED
        assert (list(sent.pixel_values.shape), sent.pixel_values.dtype) == ([1792, 1176], "float32")
        [handle] = entry.shared
        assert (handle.offset, handle.nbytes, handle.owner_id) == (0, 1792 * 1176 * 4, f"smg:{worker}")
        await until_async(lambda: not files(worker))
        page = (await asyncio.to_thread(gateway.get, "/metrics")).text
        counted = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("smg_mm_tensor"))
        assert {series: float(value) for series, value in counted.items()} == {
            'smg_mm_tensors_total{path="shm",runtime="vllm"}': 1,
            'smg_mm_tensor_bytes_total{path="shm",runtime="vllm"}': handle.nbytes,
            # Grids and counts are too small for files.
            'smg_mm_tensors_total{path="inline",runtime="vllm"}': 2,
            'smg_mm_tensor_bytes_total{path="inline",runtime="vllm"}': 3 * 8 * 3 + 3 * 8,
        }
        assert "smg_mm_shm_write_failures_total{" not in page

        good = engine.script
        engine.script = replace(good, faults=(Fault(kind="status"),))
        with pytest.raises(openai.APIStatusError):
            await ask(gateway, SMALL)
        assert len(engine.requests) == 3, "two attempts, each with a file of its own"
        await until_async(lambda: not files(worker))

        engine.script = replace(good, faults=(Fault(kind="stall"),))
        task = await unread(engine, gateway, worker)
        os.kill(worker, signal.SIGKILL)
        await asyncio.wait([task])
        await until_async(lambda: not list(DIRECTORY.glob(f"smg-mm-g*-{worker}-*")))
        engine.script = good
        await until_async(gateway.ready)
        assert (await ask(gateway, SMALL)).choices[0].message.content == "seen"


def test_rdma_is_refused_by_name(tmp_path):
    with pytest.raises(SettingsError, match="--multimodal-tensor-transport: there is no RDMA here"):
        settings(tmp_path, "--multimodal-tensor-transport", "rdma")
