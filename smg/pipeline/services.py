"""What a request worker process works with, made once after the fork."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from smg._native.region import Region
from smg.config.settings import Settings
from smg.core.stream import StreamTable
from smg.engines.pool import DriverPool
from smg.engines.transport.table import TRANSPORTS
from smg.fleet.records import FleetSnapshot
from smg.fleet.view import FleetView
from smg.parsing.choose import check_names
from smg.routing.admission import Admission
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from smg.telemetry.metrics import Metrics
from smg.text.cache_metrics import CacheMetrics
from smg.text.registry import TextRegistry
from smg.text.tables import make_table

WATCH_SECS = 0.5


class Control(Protocol):
    """The control process, as the admin routes ask it. The server puts a client here (it is above both of us)."""

    async def call(self, op: str, **arguments: Any) -> Any:
        """Run ``op`` in the control process. Raises GatewayError when it does not answer."""
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

    def follow(self, snapshot: FleetSnapshot) -> None:
        """Follow a new snapshot: load new tokenizers, let go of what no model or worker needs any more."""
        models = [*snapshot.models, *(added.as_model() for added in snapshot.tokenizers)]
        for model in models:
            self.texts.ensure(model)
        self.texts.prune(models)
        self.drivers.retain(snapshot.workers)

    async def watch(self) -> None:
        """Follow new snapshots also while no request comes, and show what the tokenizers' caches do.

        The server runs it as a task of each worker process.
        """
        caches = CacheMetrics(self.metrics)
        while True:
            self.view.snapshot()
            caches.publish({name: encoder.stats() for name, encoder in self.texts.encoders().items()})
            await asyncio.sleep(WATCH_SECS)

    async def close(self) -> None:
        """Close the connections to engines and let no more tokenizers load."""
        self.texts.close()
        await self.drivers.close()


def build(settings: Settings, region: Region, process: int) -> Services:
    """Make the services of request worker ``process``. Needs a running event loop only from the first request on.

    Raises:
        SettingsError: the settings name a parser that does not exist.
    """
    check_names(settings)
    view = FleetView(region)
    metrics = Metrics(region, process)
    if region.index is not None:
        region.index.join(process)
    policy = POLICIES[settings.routing.policy](Parts(settings.routing, region))
    services = Services(
        settings=settings,
        region=region,
        process=process,
        view=view,
        router=FleetRouter(view, region, process, policy),
        admission=Admission(settings.admission, region, process, metrics),
        texts=TextRegistry(settings.model, settings.tokenizer_cache, settings.models),
        drivers=DriverPool(TRANSPORTS[settings.fleet.engine_transport], settings.fleet.grpc_max_message_size),
        table=make_table(),
        metrics=metrics,
    )
    view.on_change(services.follow)
    return services
