"""What a request worker process works with, made once after the fork."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from smg._native.region import Region
from smg.config.load import SettingsError
from smg.config.settings import Settings
from smg.constraints.abilities import KnownAbilities
from smg.core import shared_memory
from smg.core.background import background
from smg.core.stream import StreamTable
from smg.engines.parcel import TensorTransport
from smg.engines.pool import DriverPool
from smg.engines.transport.table import CHOICES
from smg.fleet import loads
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.records import WILDCARD, FleetSnapshot
from smg.fleet.view import FleetView
from smg.parsing.choose import check_names
from smg.pipeline.debug import DebugWindow
from smg.pipeline.formats import Formats
from smg.pipeline.media import Media, check_settings
from smg.pipeline.silence import Silences
from smg.routing.admission import Admission
from smg.routing.fleet_router import FleetRouter
from smg.routing.handoff import Rooms
from smg.routing.models import resolve
from smg.routing.policies.base import Parts
from smg.routing.policies.per_model import PerModel
from smg.routing.retry import RetryBudget
from smg.routing.tenants import TenantLimits
from smg.security.signing import Signer
from smg.telemetry.metrics import Metrics
from smg.text.cache_metrics import CacheMetrics
from smg.text.mapped.folder import folder_of
from smg.text.registry import TextRegistry
from smg.text.tables import make_table

log = logging.getLogger("smg.pipeline")

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
    rooms: Rooms
    control: Control | None = None
    draining: bool = False
    debug: DebugWindow | None = None
    abilities: KnownAbilities = field(default_factory=KnownAbilities)
    budget: RetryBudget = field(default_factory=RetryBudget)
    formats: Formats = field(init=False)
    silences: Silences = field(init=False)
    tenants: TenantLimits = field(init=False)
    media: Media = field(init=False)
    signer: Signer = field(init=False)

    def __post_init__(self) -> None:
        self.formats = Formats(self.settings)
        self.silences = Silences(self.view, self.settings.routing.idle_timeout_secs)
        self.media = Media(self.settings, self.metrics)
        self.tenants = TenantLimits(self.settings.admission, self.region, self.metrics, self._model_id)
        self.signer = Signer(self.settings)

    def _model_id(self, name: str) -> str:
        """The id of the model called ``name``, or what it is called where workers serve whatever they are asked for."""
        id = resolve(self.view.snapshot(), name).id
        return name if id == WILDCARD else id

    def follow(self, snapshot: FleetSnapshot) -> None:
        """Follow a new snapshot: load new tokenizers, let go of what no model or worker needs any more."""
        models = [*snapshot.models, *(added.as_model() for added in snapshot.tokenizers)]
        for model in models:
            self.texts.ensure(model)
        self.texts.prune(models)
        self.media.retain(snapshot.models)
        self.drivers.retain(snapshot.workers)

    async def watch(self) -> None:
        """Follow new snapshots also while no request comes, end waits for engines that hang, and show what the
        tokenizers' caches do.

        The server runs it as a task of each worker process.
        """
        caches = CacheMetrics(self.metrics)
        with contextlib.suppress(OSError):
            # What a process left behind that was killed, such as the one whose place this takes.
            if count := await background(shared_memory.sweep):
                log.info("files of processes that are gone are removed from shared memory", extra={"files": count})
        while True:
            self.view.snapshot()
            self.silences.check()
            caches.publish({name: encoder.stats() for name, encoder in self.texts.encoders().items()})
            await asyncio.sleep(WATCH_SECS)

    async def close(self) -> None:
        """Close the connections to engines and let no more tokenizers load."""
        self.texts.close()
        await self.media.close()
        await self.drivers.close()


def _debug(settings: Settings, process: int) -> DebugWindow | None:
    """The window, when it is on; records of an earlier run of this process go either way."""
    directory = Path(settings.server.state_dir) / "debug"
    size = settings.telemetry.debug_requests
    window = DebugWindow(directory, process, size) if size or directory.is_dir() else None
    return window if size else None


def leg_policies(settings: Settings) -> dict[str, str]:
    """Names of the policies among prefill, decode and encode workers.

    A decode worker is sent the prompt's cache, so room for it counts there, and not what it holds already.
    """
    usual, legs = settings.routing.policy, settings.disaggregation
    decode = "least_load" if usual in ("cache_aware", "prefix_hash") else usual
    return {
        "prefill": legs.prefill_policy or usual,
        "decode": legs.decode_policy or decode,
        "encode": legs.encode_policy,
    }


def build(settings: Settings, region: Region, process: int) -> Services:
    """Make the services of request worker ``process``. Needs a running event loop only from the first request on.

    Raises:
        SettingsError: the settings name a parser that does not exist, or a network that is none.
    """
    if (problem := check_settings(settings)) is not None:
        raise SettingsError([problem])
    check_names(settings)
    view = FleetView(region)
    metrics = Metrics(region, process)
    if region.index is not None:
        region.index.join(process)
    policy = PerModel(Parts(settings.routing, region), leg_policies(settings))
    services = Services(
        settings=settings,
        region=region,
        process=process,
        view=view,
        router=FleetRouter(view, region, process, policy, CircuitBreakers(region, settings.routing, metrics)),
        admission=Admission(settings.admission, region, process, metrics),
        texts=TextRegistry(
            settings.model, settings.tokenizer_cache, settings.models, folder_of(settings.server.state_dir)
        ),
        drivers=DriverPool(
            CHOICES[settings.fleet.engine_transport],
            settings.fleet.grpc_max_message_size,
            process,
            lambda worker, load: loads.write(region, worker.slot, [load]),
            TensorTransport(settings.media.tensor_transport, settings.media.shm_min_bytes, metrics),
        ),
        table=make_table(native=settings.fleet.engine_transport != "python"),
        metrics=metrics,
        debug=_debug(settings, process),
        rooms=Rooms(region),
        budget=RetryBudget(settings.routing.retry_budget_ratio),
    )
    view.before_change(services.router.prepare)
    view.on_change(services.follow)
    return services
