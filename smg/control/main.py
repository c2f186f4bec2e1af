"""Body of the control process: the fleet's only writer (DESIGN 2).

It owns no client traffic. When it dies, request workers route on the last snapshot, and the next control process goes
on from that snapshot.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence

import uvloop

from smg._native.region import Region
from smg.config.settings import Settings
from smg.control import frames
from smg.control.admin import AdminServer, operations
from smg.control.fleet import PROCESS, FleetControl
from smg.control.workers import worker_operations
from smg.fleet.file_source import FileSource
from smg.fleet.kubernetes.api import PodsApi
from smg.fleet.kubernetes.pods import Rules
from smg.fleet.kubernetes.source import KubernetesSource
from smg.fleet.legs import LegSource
from smg.fleet.sources import EmbeddedSource, StaticSource, WorkerSource
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.control")


def run(settings: Settings, region: Region, extra_urls: Sequence[str] = ()) -> None:
    """Run control until SIGTERM (or SIGINT). ``extra_urls`` are engines the gateway started itself.

    Raises:
        ValueError: a worker URL or ``--backend`` that makes no sense.
    """
    region.claim_process(PROCESS, os.getpid())
    if region.index is not None:
        region.index.join(PROCESS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, region, extra_urls))


async def serve(
    settings: Settings, region: Region, extra_urls: Sequence[str] = (), stop: asyncio.Event | None = None
) -> None:
    """As ``run``, on the running loop and until ``stop`` is set (None: until a signal)."""
    if stop is None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    legs = LegSource(settings.disaggregation, settings.fleet.backend)
    sources: list[WorkerSource] = [
        StaticSource(settings.fleet.worker_urls, settings.fleet.backend, settings.fleet.worker_api_key),
        legs,
        EmbeddedSource(extra_urls),
    ]
    named = len(settings.fleet.worker_urls) + len(legs.specs) + len(extra_urls)
    if settings.fleet.discovery_file is not None:
        sources.append(FileSource(settings.fleet.discovery_file, settings.fleet.discovery_check_interval_secs))
    if settings.discovery.service_discovery:
        rules, connected = Rules(settings), Metrics(region, PROCESS).discovery_connected
        pods = PodsApi(settings.discovery.service_discovery_namespace, rules.common)
        sources.append(KubernetesSource(rules, pods, connected))
    fleet = FleetControl(settings, region, sources)
    admin = AdminServer(
        frames.socket_path(settings.server.state_dir, region.boot_id),
        {**operations(fleet, region), **worker_operations(fleet), **fleet.added_tokenizers.operations()},
    )
    try:
        fleet.start()
        try:
            await admin.start()
        except OSError as error:
            # Routing does not need it; admin calls will say that control does not answer.
            log.error("no control socket", extra={"error": str(error)})
        log.info("control is up", extra={"workers": named})
        await stop.wait()
    finally:
        await admin.close()
        await fleet.close()
        log.info("control has stopped")
