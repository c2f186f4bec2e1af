"""Engines of all five contracts behind one gateway, for tests: its services, as control would have published them."""

import asyncio
import contextlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

from smg._native.region import STATUS, Region
from smg.config.settings import RoutingSettings, Settings
from smg.engine_server.mock import CONTRACTS, MockEngine, Script
from smg.engine_server.mock import tokenizer as mock
from smg.engines.capabilities import offered
from smg.engines.table import adapter
from smg.fleet.models import derive
from smg.fleet.records import STATUS_CODES, FleetSnapshot, WorkerRecord
from smg.pipeline import services as pipeline
from smg.pipeline.services import Services
from tests.api.serving import until
from tests.engines.contracts import driver_to
from tests.snapshots import blob

SETTINGS = Settings(routing=RoutingSettings(retry_initial_backoff_ms=1))


@contextlib.asynccontextmanager
async def engines_of_contracts(script: Script) -> AsyncIterator[dict[str, MockEngine]]:
    """Engines by the name of their contract, which is their model's name too; ``bge`` only embeds."""
    async with contextlib.AsyncExitStack() as stack:
        made = {name: MockEngine(script, contract=name, model=name) for name in CONTRACTS}
        made["bge"] = MockEngine(contract="sglang", model="bge", generates=False)
        for engine in made.values():
            await stack.enter_async_context(engine)
        yield made


@contextlib.asynccontextmanager
async def services_over(
    engines: dict[str, MockEngine], directory: Path, settings: Settings = SETTINGS
) -> AsyncIterator[Services]:
    """Services over ``engines``; ``directory`` takes the tokenizer's files."""
    zipfile.ZipFile(io.BytesIO(mock.archive(32768))).extractall(directory)
    region = Region.create(processes=3, workers=8, series=1024, snapshot_bytes=1 << 16)
    workers, infos = [], {}
    for slot, (name, engine) in enumerate(engines.items()):
        contract = "sglang" if name == "bge" else name
        async with driver_to(engine.url, contract) as driver:
            infos[name] = await driver.info()
        features = offered(adapter(contract).capabilities, infos[name])
        worker = WorkerRecord(name, slot, engine.url, runtime=contract, models=[name], features=features)
        worker.labels = dict(infos[name].labels)
        workers.append(worker)
        region.worker_set(slot, STATUS, STATUS_CODES["ready"])
    models = derive(workers, infos, {}, lambda: 7)
    for model in models:
        model.tokenizer_dir, model.tokenizer_key = str(directory), "k"
    region.publish(blob(FleetSnapshot(1, workers, models)))
    built = pipeline.build(settings, region, 1)
    watch = asyncio.create_task(built.watch())
    await until(lambda: all(built.texts.ready(model) for model in models))
    try:
        yield built
    finally:
        watch.cancel()
        await built.close()
