"""Mock prefill and decode engines behind a pipeline in memory: real routing, drivers and sockets, no processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping

from smg.config.settings import DisaggregationSettings, RoutingSettings, Settings
from smg.core.context import RequestContext
from smg.core.events import Failure, TextDelta
from smg.core.request import GenerationRequest, Message
from smg.engine_server.mock import EOS, MockEngine, Script
from smg.engines.pool import DriverPool
from smg.engines.table import adapter
from smg.engines.transport.table import CHOICES
from smg.fleet.records import WorkerRecord
from smg.fleet.roles import role_of
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.generation import Generation
from smg.pipeline.services import Services
from smg.routing.admission import Admission
from smg.routing.fleet_router import FleetRouter
from smg.routing.handoff import Rooms
from smg.routing.policies.round_robin import RoundRobin
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from smg.text.tables import make_table
from tests.pipeline.fakes import FakeTexts, text_model
from tests.routing.fleets import PROCESS, FakeFleet
from tests.transports import CHOSEN

TEXT = "the answer of the decode engine"
PAIRED = ("sglang", "tokenspeed", "vllm")
# By the first letter of an engine's name.
ROLES = {"p": "prefill", "d": "decode", "e": "encode"}


class Pairs:
    """One model, its engines by name (``ROLES``), and the services over them; ``transport`` is a row of CHOICES."""

    def __init__(
        self, engines: Mapping[str, MockEngine], contract: str, settings: Settings, transport: str = CHOSEN
    ) -> None:
        self.engines = engines
        self.fleet = FakeFleet({"m": list(engines)}, eos_ids=[EOS], context_length=1000)
        for name, worker in self.fleet.workers.items():
            worker.url = engines[name].url
            worker.runtime = contract
            worker.features = adapter(contract).capabilities
            worker.labels = _labels(name, engines[name])
            worker.role = role_of(worker.labels)
        region = self.fleet.region
        self.cells = LocalCells()
        metrics = Metrics(self.cells, PROCESS)
        self.services = Services(
            settings=settings,
            region=region,
            process=PROCESS,
            view=self.fleet,
            router=FleetRouter(self.fleet, region, PROCESS, RoundRobin(region)),
            admission=Admission(settings.admission, region, PROCESS, metrics),
            texts=FakeTexts(text_model()),
            drivers=DriverPool(CHOICES[transport]),
            table=make_table(native=transport != "python"),
            metrics=metrics,
            rooms=Rooms(region),
        )

    def worker(self, name: str) -> WorkerRecord:
        return self.fleet.workers[name]

    def idle(self) -> bool:
        """Nothing counted in the gateway, nothing running or kept on any engine."""
        running = any(engine.running or engine.held for engine in self.engines.values())
        return self.fleet.idle() and len(self.services.table) == 0 and not running

    def metric(self, name: str) -> int:
        return sum(value for key, _, value in self.cells.read_series() if name in key.decode())

    async def answer(self, ctx: RequestContext | None = None, **fields: object) -> Accumulator:
        """Run one generation to its end."""
        accumulator = Accumulator(int(fields.get("n", 1)))
        generation = self.generation(ctx, **fields)
        try:
            await generation.start()
            async for events in generation:
                accumulator.feed(events)
        finally:
            await generation.aclose()
        return accumulator.finish()

    async def text(self, ctx: RequestContext | None = None, **fields: object) -> str:
        return (await self.answer(ctx, **fields)).choices[0].text

    async def stream(self, ctx: RequestContext | None = None) -> tuple[str, Failure | None]:
        """Run one generation as a stream; returns its text, and its failure if it has one."""
        text, failure = "", None
        generation = self.generation(ctx, stream=True)
        try:
            await generation.start()
            async for events in generation:
                for event in events:
                    text += event.text if isinstance(event, TextDelta) else ""
                    failure = event if isinstance(event, Failure) else failure
        finally:
            await generation.aclose()
        return text, failure

    def generation(self, ctx: RequestContext | None = None, **fields: object) -> Generation:
        fields.setdefault("messages", [Message("user", "hi")])
        request = GenerationRequest("test", "m", **fields)
        return Generation(self.services, ctx or RequestContext("r", endpoint="/t"), request)


@contextlib.asynccontextmanager
async def pairs(
    contract: str,
    *names: str,
    scripts: Mapping[str, Script] | None = None,
    connector: str = "NixlConnector",
    settings: Settings | None = None,
    patience: float = 600.0,
    transport: str = CHOSEN,
) -> AsyncIterator[Pairs]:
    """Engines called ``names`` of ``contract``, with the ``scripts`` of some of them."""
    if settings is None:
        settings = Settings(
            routing=RoutingSettings(retry_initial_backoff_ms=1),
            disaggregation=DisaggregationSettings(prefill_timeout_secs=patience),
        )
    async with contextlib.AsyncExitStack() as stack:
        engines = {}
        for name in names or ("p1", "d1"):
            role = ROLES.get(name[0], "regular")
            script = (scripts or {}).get(name, Script.text(TEXT))
            engine = MockEngine(script, contract=contract, role=role, connector=connector)
            engines[name] = await stack.enter_async_context(engine)
        made = Pairs(engines, contract, settings, transport)
        stack.push_async_callback(made.services.drivers.close)
        yield made


async def eventually(condition: Callable[[], bool], seconds: float = 3.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - engines in tests have no event for it
            await asyncio.sleep(0.01)


def _labels(name: str, engine: MockEngine) -> dict[str, str]:
    role = ROLES.get(name[0], "regular")
    labels = {"worker_type": role}
    if role in ("prefill", "encode"):
        labels["bootstrap_port"] = str(engine.bootstrap_port)
    if role != "regular":
        labels |= {"kv_connector": engine.connector, "kv_engine_id": engine.engine_id}
    return {key: value for key, value in labels.items() if value}
