"""A pipeline in memory: real routing, text and parsing; scripted engines instead of drivers."""

import asyncio
import functools
import io
import tempfile
import zipfile
from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TypeAlias

from smg.config.settings import AdmissionSettings, RoutingSettings, Settings
from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engine_server.mock import tokenizer as mock
from smg.fleet.records import WorkerRecord
from smg.pipeline.services import Services
from smg.routing.admission import Admission
from smg.routing.fleet_router import FleetRouter
from smg.routing.handoff import Rooms
from smg.routing.policies.round_robin import RoundRobin
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from smg.text.registry import TextModel
from smg.text.tables import make_table
from tests.routing.fleets import PROCESS, FakeFleet

EOS = mock.EOS
SETTINGS = Settings(routing=RoutingSettings(retry_initial_backoff_ms=1))

# One entry is one pull: batches, an error to raise, seconds to sleep, or ``FOREVER``.
FOREVER = object()
Step: TypeAlias = "list[TokenBatch] | GatewayError | float | object"


@functools.cache
def text_model() -> TextModel:
    """The mock engine's tokenizer and template, loaded as any model's."""
    with tempfile.TemporaryDirectory() as directory:
        zipfile.ZipFile(io.BytesIO(mock.archive(100))).extractall(directory)
        return TextModel(directory)


def text(content: str, index: int = 0, **fields) -> TokenBatch:
    return TokenBatch(index, mock.encode_text(content), **fields)


def end(index: int = 0, reason: str = "stop", **fields) -> TokenBatch:
    return TokenBatch(index, finish=reason, **fields)


class FakeSource:
    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps = list(steps)
        self.cancelled: list[str] = []
        self.pulls = 0

    async def next(self) -> list[TokenBatch]:
        self.pulls += 1
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, GatewayError):
                raise step
            if step is FOREVER:
                await asyncio.Event().wait()
            if isinstance(step, int | float):
                await asyncio.sleep(step)
                continue
            await asyncio.sleep(0)
            assert isinstance(step, list)
            return step
        return []

    async def cancel(self, reason: str) -> None:
        await asyncio.sleep(0)
        self.cancelled.append(reason)


class FakeDrivers:
    """Scripts by worker: each ``open`` takes the worker's next one; the last one stays."""

    def __init__(self, scripts: dict[str, list[list[Step] | GatewayError]]) -> None:
        self._scripts = scripts
        self.opened: list[tuple[str, EngineRequest]] = []
        self.sources: list[FakeSource] = []

    def get(self, worker: WorkerRecord) -> SimpleNamespace:
        async def open(ctx: RequestContext, request: EngineRequest) -> FakeSource:
            await asyncio.sleep(0)
            self.opened.append((worker.id, request))
            scripts = self._scripts[worker.id]
            script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
            if isinstance(script, GatewayError):
                raise script
            self.sources.append(FakeSource(script))
            return self.sources[-1]

        return SimpleNamespace(open=open)

    @property
    def cancelled(self) -> list[str]:
        return [reason for source in self.sources for reason in source.cancelled]


class FakeTexts:
    def __init__(self, model: TextModel) -> None:
        self._model = model
        self.loaded = True
        self.load: Future[TextModel] | None = None

    def get(self, record: object) -> TextModel:
        if not self.loaded:
            raise GatewayError("tokenizer_not_ready", "the tokenizer is not ready")
        return self._model

    def known(self, record: object) -> TextModel | None:
        return self._model if self.loaded else None

    def ready(self, record: object) -> bool:
        return self.loaded

    def ensure(self, record: object) -> Future[TextModel] | None:
        return self.load

    def finish_load(self) -> None:
        assert self.load is not None
        self.loaded = True
        self.load.set_result(self._model)


class World(SimpleNamespace):
    """``services`` for a Generation, and what a test looks at: ``fleet``, ``drivers``, ``texts``, ``cells``."""

    fleet: FakeFleet
    drivers: FakeDrivers
    texts: FakeTexts
    services: Services

    def idle(self) -> bool:
        """Nothing is counted and no row is open: what must hold after every request."""
        return self.fleet.idle() and len(self.services.table) == 0

    def metric(self, name: str) -> int:
        """Sum over the series whose name contains ``name``."""
        return sum(value for key, _, value in self.cells.read_series() if name in key.decode())


def world(
    scripts: dict[str, list[list[Step] | GatewayError]],
    settings: Settings = SETTINGS,
    model: str = "m",
    **record: object,
) -> World:
    fleet = FakeFleet({model: list(scripts)}, **{"eos_ids": [EOS], "context_length": 100} | record)
    drivers, texts, cells = FakeDrivers(scripts), FakeTexts(text_model()), LocalCells()
    metrics = Metrics(cells, PROCESS)
    services = Services(
        settings=settings,
        region=fleet.region,
        process=PROCESS,
        view=fleet,
        router=FleetRouter(fleet, fleet.region, PROCESS, RoundRobin(fleet.region)),
        admission=Admission(settings.admission, fleet.region, PROCESS, metrics),
        texts=texts,
        drivers=drivers,
        table=make_table(),
        metrics=metrics,
        rooms=Rooms(fleet.region),
    )
    return World(fleet=fleet, drivers=drivers, texts=texts, cells=cells, services=services)


def limited(most: int, queue: int = 0) -> Settings:
    return Settings(routing=SETTINGS.routing, admission=AdmissionSettings(most, queue))
