"""FleetControl: makes the fleet what the sources say, and keeps the region's picture of it true."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from smg._native import region as table
from smg.config.settings import Settings
from smg.control.tokenizer_jobs import TokenizerJobs
from smg.core.errors import GatewayError
from smg.engines.base import EngineInfo
from smg.engines.driver import GrpcDriver
from smg.fleet.health import Thresholds
from smg.fleet.monitor import WorkerMonitor
from smg.fleet.records import WorkerRecord
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSource, WorkerSpec
from smg.fleet.tokenizers import Tokenizers

log = logging.getLogger("smg.control")

_MAX_PROBES = 128
# Changes that come together are published together.
_PUBLISH_DELAY = 0.02
# How often the failures that request workers report are looked at.
_LOOK_INTERVAL = 0.1
_DRAIN_INTERVAL = 0.1
# How often the places of workers that have left are taken back from the prefix index.
_SWEEP_INTERVAL = 5.0
_SOURCE_RETRY_SECS = 5.0


class FleetControl:
    """Everything control runs, as tasks of one event loop: ``start``, later ``close``."""

    def __init__(self, settings: Settings, region: table.Region, sources: Sequence[WorkerSource]) -> None:
        self._settings = settings
        self._region = region
        self._sources = list(sources)
        self._wanted: dict[int, Sequence[WorkerSpec]] = {}
        self._monitors: dict[str, WorkerMonitor] = {}  # by worker id
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._thresholds = Thresholds.of(settings.fleet)
        self._probes = asyncio.Semaphore(_MAX_PROBES)
        self.registry = Registry(region)
        cache = Path(settings.server.state_dir).expanduser() / "tokenizers"
        self.added_tokenizers = TokenizerJobs(self.registry, self._want_tokenizer, cache)
        self._tokenizers = Tokenizers(settings.model, self.registry, self._engines, cache, settings.models)

    def start(self) -> None:
        """Start all tasks on the running loop."""
        self.registry.publish()
        self.added_tokenizers.start()
        self._spawn(self._publish_changes())
        self._spawn(self._look_at_failures())
        self._spawn(self._sweep_index())
        for number, source in enumerate(self._sources):
            self._spawn(self._follow(number, source))

    async def close(self) -> None:
        """Stop all tasks and connections. The fleet stays published: request workers route on."""
        running = [*self._tasks, *self._probing.values(), *self._draining.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.added_tokenizers.close()
        await self._tokenizers.close()
        await asyncio.gather(*(monitor.close() for monitor in self._monitors.values()), return_exceptions=True)
        if self.registry.dirty.is_set():
            self.registry.publish()

    # -- which workers there are

    async def _follow(self, number: int, source: WorkerSource) -> None:
        """Take over what one source says, for ever; a source that breaks keeps its last word and is asked again."""
        while True:
            try:
                async for specs in source.watch():
                    self._wanted[number] = specs
                    self._reconcile()
                return
            except Exception:
                log.exception("worker source broke", extra={"source": type(source).__name__})
                await asyncio.sleep(_SOURCE_RETRY_SECS)

    def _reconcile(self) -> None:
        """Add what is wanted and missing; drain what nobody wants, once every source has spoken."""
        wanted: dict[str, WorkerSpec] = {}
        for number in sorted(self._wanted):
            for spec in self._wanted[number]:
                wanted.setdefault(spec.url, spec)
        for spec in wanted.values():
            try:
                self._watch(spec)
            except (GatewayError, ValueError) as error:
                log.error("worker cannot be added", extra={"worker": spec.url, "error": str(error)})
        if len(self._wanted) == len(self._sources):
            for worker in self.registry.workers:
                if worker.url not in wanted and worker.id not in self._draining:
                    self._draining[worker.id] = asyncio.create_task(self._drain(worker))

    def _watch(self, spec: WorkerSpec) -> None:
        """Have the worker in the registry and a monitor on it."""
        worker = self.registry.add(spec.url, labels=spec.labels, priority=spec.priority, cost=spec.cost)
        if worker.id in self._probing:
            return
        drain = self._draining.pop(worker.id, None)
        if drain is not None:
            drain.cancel()
        if worker.status == "draining":
            self.registry.set_status(worker.id, "pending")
        monitor = WorkerMonitor(
            self.registry,
            self._region,
            worker,
            self._thresholds,
            self._settings.fleet.health_check_timeout_secs,
            self._probes,
            self._tokenizers.want,
            spec.runtime,
        )
        self._monitors[worker.id] = monitor
        task = asyncio.create_task(monitor.run(), name=f"monitor of {worker.url}")
        task.add_done_callback(_report)
        self._probing[worker.id] = task

    async def _drain(self, worker: WorkerRecord) -> None:
        """Route nothing more to the worker, let what runs end (bounded), then forget it."""
        self.registry.set_status(worker.id, "draining")
        task = self._probing.pop(worker.id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        monitor = self._monitors.pop(worker.id, None)
        if monitor is not None:
            await monitor.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.server.shutdown_grace_period_secs):
                while self._region.inflight(worker.slot)[0] > 0:  # noqa: ASYNC110 - other processes count there
                    await asyncio.sleep(_DRAIN_INTERVAL)
        self.registry.remove(worker.id)
        self._draining.pop(worker.id, None)
        log.info("worker has left", extra={"worker": worker.url})

    # -- what follows from it

    def _want_tokenizer(self, model_id: str) -> None:
        self._tokenizers.want(model_id)

    def _engines(self, model_id: str) -> list[tuple[GrpcDriver, EngineInfo]]:
        """Who serves the model, ready ones first."""
        found = []
        for worker in sorted(self.registry.workers, key=lambda worker: worker.status != "ready"):
            monitor, info = self._monitors.get(worker.id), self.registry.info(worker.id)
            if model_id in worker.models and info is not None and monitor is not None and monitor.driver is not None:
                found.append((monitor.driver, info))
        return found

    async def _publish_changes(self) -> None:
        while True:
            await self.registry.dirty.wait()
            await asyncio.sleep(_PUBLISH_DELAY)
            self.registry.publish()

    async def _sweep_index(self) -> None:
        while self._region.index is not None:
            await asyncio.sleep(_SWEEP_INTERVAL)
            await asyncio.to_thread(self._region.index.sweep)

    async def _look_at_failures(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            for monitor in self._monitors.values():
                monitor.look()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))


def _report(task: asyncio.Task[None]) -> None:
    """A monitor never ends by itself: say so when a defect ended one."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("%s has ended", task.get_name(), exc_info=failure)
