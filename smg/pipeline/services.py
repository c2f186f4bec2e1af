"""What a request worker process works with, made once after the fork."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from smg._native.region import Region
from smg.config.settings import Settings
from smg.core.stream import StreamTable
from smg.engines.pool import DriverPool
from smg.fleet.view import FleetView
from smg.routing.admission import Admission
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.table import POLICIES
from smg.telemetry.metrics import Metrics
from smg.text.registry import TextRegistry
from smg.text.stream_table import PythonStreamTable

WATCH_SECS = 0.5


class Control(Protocol):
    """The control process, as the admin routes ask it. The server puts a client here (it is above both of us)."""

    async def workers(self) -> list[Any]:
        """All workers with their state. Raises GatewayError when control does not answer."""
        ...

    async def loads(self) -> list[Any]:
        """The engines' last load reports. Raises GatewayError when control does not answer."""
        ...


@dataclass
class Services:
    """Everything handlers and generations share in one process. ``draining`` is set by the server at SIGTERM."""

    settings: Settings
    region: Region
    process: int
    view: FleetView
    router: FleetRouter
    admission: Admission
    texts: TextRegistry
    drivers: DriverPool
    table: StreamTable
    metrics: Metrics
    control: Control | None = None
    draining: bool = False

    def refresh(self) -> None:
        """Follow the fleet's snapshot: load new tokenizers, let drivers of workers that left go."""
        snapshot = self.view.snapshot()
        for model in snapshot.models:
            self.texts.ensure(model)
        self.texts.prune(snapshot.models)
        self.drivers.retain(snapshot.workers)

    async def watch(self) -> None:
        """Keep refreshing; the server runs this as a task of the worker process, until it is cancelled."""
        version = -1
        while True:
            current = self.region.snapshot_version()
            if current != version:
                self.refresh()
                version = current
            await asyncio.sleep(WATCH_SECS)

    async def close(self) -> None:
        """Close the connections to engines and let no more tokenizers load."""
        self.texts.close()
        await self.drivers.close()


def build(settings: Settings, region: Region, process: int) -> Services:
    """Make the services of request worker ``process``. Needs a running event loop only from the first request on."""
    view = FleetView(region)
    policy = POLICIES[settings.routing.policy](region)
    return Services(
        settings=settings,
        region=region,
        process=process,
        view=view,
        router=FleetRouter(view, region, process, policy),
        admission=Admission(settings.admission, region, process),
        texts=TextRegistry(settings.model),
        drivers=DriverPool(),
        table=PythonStreamTable(),
        metrics=Metrics(region, process),
    )
