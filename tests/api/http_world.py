"""Services in front of mock HTTP engines: real routing, relays and drivers, no processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from smg.config.settings import Settings
from smg.engine_server.mock.http import MockHttpEngine
from smg.engines.http.driver import HttpDriver
from smg.engines.pool import DriverPool
from smg.fleet.roles import role_of
from tests.api.serving import serving
from tests.pipeline.fakes import SETTINGS, World, world

MODEL = "mock-model"


class Place:
    """The application at ``url``, the ``engines`` behind it, and the ``world`` of its services."""

    def __init__(self, url: str, engines: list[MockHttpEngine], world: World) -> None:
        self.url = url
        self.engines = engines
        self.world = world

    def idle(self) -> bool:
        return self.world.idle() and not any(engine.running for engine in self.engines)


@asynccontextmanager
async def place(
    *engines: MockHttpEngine,
    settings: Settings = SETTINGS,
    tokens: dict | None = None,
    model: str = MODEL,
    **record: object,
) -> AsyncIterator[Place]:
    """Serve the engines' model. ``tokens`` are scripts of further workers that take token ids."""
    names = [f"h{number}" for number in range(len(engines))]
    scripts = {name: [[]] for name in names} | (tokens or {})
    made = world(scripts, settings, model, **record)
    scripted = made.services.drivers
    pool = DriverPool()
    pool.get = scripted.get  # type: ignore[method-assign]
    made.services.drivers = pool
    for name, engine in zip(names, engines, strict=True):
        await engine.start()
        worker = made.fleet.workers[name]
        worker.url, worker.kind, worker.api_key = engine.url, "raw", engine.script.key
        driver = HttpDriver(engine.url, key=engine.script.key)
        worker.labels = (await driver.info()).labels
        worker.role = role_of(worker.labels)
        worker.runtime, worker.features = driver.runtime, driver.capabilities
        await driver.close()
    try:
        async with serving(made.services) as url:
            yield Place(url, list(engines), made)
    finally:
        await pool.close()
        for engine in engines:
            await engine.stop()
