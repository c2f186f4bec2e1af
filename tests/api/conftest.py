"""A gateway on loopback over two mock engines, with everything but the processes: Sanic, real services, gRPC."""

import asyncio
import io
import zipfile

import aiohttp
import openai
import pytest

from smg._native.region import STATUS, Region
from smg.config.settings import FleetSettings, ModelSettings, RoutingSettings, Settings
from smg.engine_server.mock import MockEngine
from smg.engine_server.mock import tokenizer as mock
from smg.fleet.records import STATUS_CODES, FleetSnapshot, ModelRecord, WorkerRecord
from smg.pipeline import services as pipeline
from tests.api.serving import serving, until
from tests.snapshots import blob
from tests.transports import CHOSEN


@pytest.fixture
async def engines():
    async with MockEngine() as first, MockEngine() as second:
        yield [first, second]


@pytest.fixture
def model_dir(tmp_path):
    """The model's tokenizer and template: those of the mock engine."""
    zipfile.ZipFile(io.BytesIO(mock.archive(4096))).extractall(tmp_path)
    return tmp_path


@pytest.fixture
def engine_transport():
    return CHOSEN


@pytest.fixture
def model_settings():
    return ModelSettings()


@pytest.fixture
async def gateway(engines, model_dir, engine_transport, model_settings):
    """Services over a fleet of two engines, as control would have published it."""
    region = Region.create(processes=3, workers=8, series=1024, snapshot_bytes=1 << 16)
    workers = [
        WorkerRecord(f"w{slot}", slot, engine.url, runtime="vllm", models=["mock"])
        for slot, engine in enumerate(engines)
    ]
    model = ModelRecord(
        "mock", tokenizer_dir=str(model_dir), tokenizer_key="k", context_length=4096, eos_ids=[mock.EOS]
    )
    region.publish(blob(FleetSnapshot(1, workers, [model])))
    for worker in workers:
        region.worker_set(worker.slot, STATUS, STATUS_CODES["ready"])
    fleet = FleetSettings(engine_transport=engine_transport)
    settings = Settings(model=model_settings, fleet=fleet, routing=RoutingSettings(retry_initial_backoff_ms=1))
    built = pipeline.build(settings, region, 1)
    watch = asyncio.create_task(built.watch())
    await until(lambda: built.texts.ready(model))
    yield built
    watch.cancel()
    await built.close()


@pytest.fixture
async def url(gateway):
    async with serving(gateway) as url:
        yield url


@pytest.fixture
async def client(url):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def post(url):
    """``await post(path, body)``: status and JSON or bytes."""
    async with aiohttp.ClientSession() as http:

        async def post(path, body):
            async with http.post(url + path, json=body) as response:
                kind = response.content_type
                return response.status, await (response.json() if kind == "application/json" else response.read())

        yield post


def say(engines, script):
    for engine in engines:
        engine.script = script


async def idle(gateway, engines):
    """Everything has been given back, here and on the engines."""

    def nothing_left():
        region = gateway.region
        counts = [region.inflight(slot) for slot in range(2)]
        return region.requests_total() == 0 and counts == [(0, 0)] * 2 and not any(e.running for e in engines)

    await until(nothing_left)
    assert len(gateway.table) == 0
