"""FleetControl: makes the fleet what the sources say, and keeps the region's picture of it true."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from smg._native import region as table
from smg.config.settings import Settings
from smg.control.describe import Describer
from smg.control.kv_events import KvSubscriptions
from smg.control.prepared_kernels import PreparedKernels
from smg.control.prepared_tokenizers import PreparedTokenizers
from smg.control.tokenizer_jobs import TokenizerJobs
from smg.control.wanted import Wanted
from smg.core.errors import GatewayError
from smg.engines.base import Driver, EngineInfo, EngineLoad
from smg.engines.driver import GrpcDriver
from smg.engines.finding import scheme_of
from smg.fleet import loads
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.health import Thresholds
from smg.fleet.monitor import WorkerMonitor
from smg.fleet.policies import LABEL, policies_over
from smg.fleet.records import WorkerRecord
from smg.fleet.registry import Registry
from smg.fleet.sources import ApiSource, Explaining, WorkerSource, WorkerSpec
from smg.fleet.tokenizers import Tokenizers
from smg.routing.policies import parameters
from smg.telemetry.metrics import Metrics
from smg.text.mapped.folder import folder_of

log = logging.getLogger("smg.control")

PROCESS = 0  # control's row in the region
_MAX_PROBES = 128
# Changes that come together are published together.
_PUBLISH_DELAY = 0.02
# Every request worker reads what has changed, a part per turn: seconds for one.
_PART_SECS = 0.005
# How often the failures that request workers report are looked at.
_LOOK_INTERVAL = 0.1
_DRAIN_INTERVAL = 0.1
# How often the places of workers that have left are taken back from the prefix index.
_SWEEP_INTERVAL = 5.0
_SOURCE_RETRY_SECS = 5.0
# Workers that join or leave in one step of the loop.
_SETTLED_AT_ONCE = 16


class FleetControl:
    """Everything control runs, as tasks of one event loop: ``start``, later ``close``."""

    def __init__(self, settings: Settings, region: table.Region, sources: Sequence[WorkerSource]) -> None:
        self._settings = settings
        self._region = region
        self._metrics = Metrics(region, PROCESS)
        self._breakers = CircuitBreakers(region, settings.routing, self._metrics)
        self.registry = Registry(region, self._breakers, settings.fleet.dp_aware)
        self._describer = Describer(self.registry, region, self._breakers, settings.fleet.engine_transport)
        # One that was leaving when an earlier control process died goes on leaving.
        kept = (worker for worker in self.registry.workers if worker.status != "draining")
        self._api = ApiSource(worker.spec for worker in kept if worker.origin == ApiSource.name and worker.spec)
        self._sources = [*sources, self._api]
        self._wanted = Wanted([source.name for source in self._sources])
        self._failed: set[str] = set()  # URLs of workers that could not be added, for the next try
        self._monitors: dict[str, WorkerMonitor] = {}  # by worker id
        self._facts: dict[str, object] = {}  # what each monitor goes by
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._routed: dict[tuple[str | None, ...], bool] = {}  # by models and label; see _routed_by_cache
        self._routed_at = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._thresholds = Thresholds.of(settings.fleet)
        self._probes = asyncio.Semaphore(_MAX_PROBES)
        cache = Path(settings.server.state_dir).expanduser() / "tokenizers"
        self._prepared = PreparedTokenizers(folder_of(settings.server.state_dir))
        self.added_tokenizers = TokenizerJobs(self.registry, self._want_tokenizer, cache, self._prepared.prepare)
        self._kernels = PreparedKernels(settings.server.state_dir)
        attempt = self._prepared.attempt
        self._tokenizers = Tokenizers(settings.model, self.registry, self._engines, cache, settings.models, attempt)

    def start(self) -> None:
        """Start all tasks on the running loop."""
        self.registry.publish()
        self._prepared.start()
        self.added_tokenizers.start()
        self._spawn(self._publish_changes())
        self._spawn(self._look_at_failures())
        self._spawn(self._sweep_index())
        self._spawn(self._fade())
        self._spawn(self._tokenizers.watch())
        if self._settings.routing.kv_events and self._region.index is not None:
            workers, driver = lambda: self.registry.workers, self._driver_of
            kv = KvSubscriptions(
                self._region.index, self._metrics, workers, driver, self._routed_by_cache, self._take_load
            )
            self._spawn(kv.run())
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
        await self._prepared.close()
        await self._kernels.close()
        await asyncio.gather(*(monitor.close() for monitor in self._monitors.values()), return_exceptions=True)
        if self.registry.dirty.is_set():
            self.registry.publish()

    # -- which workers there are

    async def _follow(self, number: int, source: WorkerSource) -> None:
        """Take over what one source says, for ever; a source that breaks keeps its last word and is asked again."""
        while True:
            try:
                async for specs in source.watch():
                    await self._take_in_turns(number, specs)
                return
            except Exception:
                log.exception("worker source broke", extra={"source": type(source).__name__})
                await asyncio.sleep(_SOURCE_RETRY_SECS)

    def _take(self, number: int, specs: Sequence[WorkerSpec]) -> None:
        """What source ``number`` wants now."""
        for url in self._told(number, specs):
            self._settle(url)

    async def _take_in_turns(self, number: int, specs: Sequence[WorkerSpec]) -> None:
        """What source ``number`` wants now; thousands may have come or gone."""
        urls = self._told(number, specs)
        for start in range(0, len(urls), _SETTLED_AT_ONCE):
            for url in urls[start : start + _SETTLED_AT_ONCE]:
                self._settle(url)
            await asyncio.sleep(0)

    def _told(self, number: int, specs: Sequence[WorkerSpec]) -> list[str]:
        """Note what a source says; returns the URLs that are to be settled because of it."""
        silent = self._wanted.silent
        urls = self._wanted.say(number, specs)
        if silent != self._wanted.silent:
            # Nobody knew yet whether workers of an earlier control process are still wanted.
            urls = [*self._wanted.urls, *(worker.url for worker in self.registry.workers), *self.registry.refused]
        for name, count in self._wanted.counts().items():
            self._metrics.discovery_workers_discovered.set(name, v=count)
        return list(dict.fromkeys([*urls, *self._failed]))

    def _settle(self, url: str) -> None:
        """Have a worker at ``url`` if one is wanted there; drain what nobody wants, once all who may have spoken."""
        asked, worker = self._wanted.at(url), self.registry.by_url(url)
        silent = self._wanted.silent
        if asked is None and worker is not None and worker.origin in silent and worker.status != "draining":
            # An earlier control process knew it, and nobody has said yet that it has gone.
            asked = None if worker.spec is None else (worker.spec, worker.origin)
        if asked is None and not silent:
            # Who is asked for no more need not be refused either.
            self.registry.refused.discard(url)
        self._failed.discard(url)
        if asked is not None and url not in self.registry.refused:
            self._join(*asked)
        elif worker is not None and worker.id not in self._draining:
            self._begin_drain(worker, self._departure(worker))

    def _join(self, spec: WorkerSpec, origin: str) -> None:
        known = self.registry.by_url(spec.url) is not None
        result = "added"
        try:
            self._watch(spec, origin)
        except (GatewayError, ValueError) as error:
            log.error("worker cannot be added", extra={"worker": spec.url, "error": str(error)})
            result = "failed"
            self._failed.add(spec.url)
        if not known:
            self._metrics.discovery_registrations_total.inc(origin, result)

    def _departure(self, worker: WorkerRecord) -> str:
        """Why nobody wants the worker any more."""
        source = next((source for source in self._sources if source.name == worker.origin), None)
        return source.departure(worker.url) if isinstance(source, Explaining) else "unlisted"

    def _labels(self, spec: WorkerSpec) -> dict[str, str]:
        """The spec's labels; of an engine core, which does not tell its model, also the configured one."""
        path = self._settings.model.model_path
        if path is None or scheme_of(spec.url) != "zmq":
            return spec.labels
        return {"model_path": path, **spec.labels}

    def _watch(self, spec: WorkerSpec, origin: str) -> None:
        """Have the worker in the registry and a monitor on it."""
        worker = self.registry.add(replace(spec, labels=self._labels(spec)), origin)
        if worker.id in self._probing:
            self._monitors[worker.id].obey()
            if self._facts[worker.id] != _facts(worker.wanted):
                self._restart(worker)
            return
        drain = self._draining.pop(worker.id, None)
        if drain is not None:
            drain.cancel()
        if worker.status == "draining":
            self.registry.set_status(worker.id, "pending")
        wanted = worker.wanted
        monitor = WorkerMonitor(
            self.registry,
            self._region,
            worker,
            self._thresholds.overridden(wanted),
            wanted.health.timeout_secs or self._settings.fleet.health_check_timeout_secs,
            self._probes,
            self._tokenizers.want,
            wanted.runtime,
            wanted.load_monitor_interval_secs or self._settings.fleet.load_monitor_interval,
            self._settings.server.workers + 1,
        )
        self._monitors[worker.id] = monitor
        self._facts[worker.id] = _facts(wanted)
        task = asyncio.create_task(monitor.run(), name=f"monitor of {worker.url}")
        task.add_done_callback(_report)
        self._probing[worker.id] = task

    def _begin_drain(self, worker: WorkerRecord, reason: str) -> None:
        """Route nothing more to the worker; ``reason`` is one word of few."""
        if worker.status != "draining":
            self._metrics.discovery_deregistrations_total.inc(worker.origin, reason)
        self.registry.set_status(worker.id, "draining", reason)
        self._draining[worker.id] = asyncio.create_task(self._drain(worker))

    async def _drain(self, worker: WorkerRecord) -> None:
        """Let what runs on the worker end (bounded), then forget it."""
        await self._stop_probing(worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.fleet.worker_drain_timeout_secs):
                # A request worker that had just seen it ready counts within this time.
                await asyncio.sleep(_DRAIN_INTERVAL)
                while self._region.inflight(worker.slot)[0] > 0:  # noqa: ASYNC110 - other processes count there
                    await asyncio.sleep(_DRAIN_INTERVAL)
        self.registry.remove(worker.id)
        self._draining.pop(worker.id, None)
        facts = {"worker": worker.url, "worker_id": worker.id, "reason": worker.reason}
        log.info("worker has left", extra=facts)

    async def _stop_probing(self, worker: WorkerRecord) -> None:
        task = self._probing.pop(worker.id, None)
        monitor = self._monitors.pop(worker.id, None)
        self._facts.pop(worker.id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if monitor is not None:
            await monitor.close()

    # -- what the admin API does

    def create(self, spec: WorkerSpec) -> WorkerRecord:
        """Want one more worker.

        Raises:
            GatewayError: ``worker_already_exists``, or ``overloaded`` when there is no room for it.
        """
        found = self.registry.by_url(spec.url)
        if found is not None and found.status != "draining":
            raise GatewayError("worker_already_exists", f"the worker '{found.id}' has this URL", param="url")
        self.registry.refused.discard(spec.url)
        if found is not None:
            found.patch = {}
        self._api.put(spec)
        self._take(len(self._sources) - 1, self._api.specs)
        worker = self.registry.by_url(spec.url)
        if worker is None:
            self._api.drop(spec.url)
            raise GatewayError("overloaded", f"all {self._region.workers} worker slots are taken")
        return worker

    def change(self, worker: WorkerRecord, fields: Mapping[str, Any]) -> WorkerRecord:
        """Change fields of what is wanted of ``worker``; what concerns its probes is begun anew."""
        self.registry.patch(worker.id, fields)
        if self._facts.get(worker.id) != _facts(worker.wanted):
            self._restart(worker)
        return worker

    def dismiss(self, worker: WorkerRecord, reason: str = "dismissed") -> None:
        """Want ``worker`` no more, whoever else does: it drains and leaves."""
        if worker.id not in self._draining:
            self._begin_drain(worker, reason)
        self._api.drop(worker.url)
        self.registry.refused.add(worker.url)
        self.registry.dirty.set()
        self._take(len(self._sources) - 1, self._api.specs)
        self._settle(worker.url)

    def describe(self, worker: WorkerRecord) -> dict[str, Any]:
        """``worker`` as operators see it."""
        monitor = self._monitors.get(worker.id)
        return self._describer.worker(worker, None if monitor is None else monitor.probed)

    def _restart(self, worker: WorkerRecord) -> None:
        async def again() -> None:
            await self._stop_probing(worker)
            self._settle(worker.url)

        if worker.id in self._probing:
            self._spawn(again())

    # -- what follows from it

    def _want_tokenizer(self, model_id: str) -> None:
        self._tokenizers.want(model_id)

    def _engines(self, model_id: str) -> list[tuple[Driver, EngineInfo]]:
        """Who serves the model, ready ones first."""
        found: list[tuple[Driver, EngineInfo]] = []
        for worker in sorted(self.registry.workers, key=lambda worker: worker.status != "ready"):
            monitor, info = self._monitors.get(worker.id), self.registry.info(worker.id)
            if model_id in worker.models and info is not None and monitor is not None and monitor.driver is not None:
                found.append((monitor.driver, info))
        return found

    def _driver_of(self, worker_id: str) -> GrpcDriver | None:
        monitor = self._monitors.get(worker_id)
        driver = monitor.driver if monitor is not None else None
        return driver if isinstance(driver, GrpcDriver) else None

    def _take_load(self, worker: WorkerRecord, load: EngineLoad) -> None:
        """An engine has told its load without being asked."""
        last = self.registry.load(worker.id)
        self.registry.report_load(worker.id, loads.take(self._region, worker, last, load))

    def _routed_by_cache(self, worker: WorkerRecord) -> bool:
        """Whether anybody looks at what the worker holds."""
        if self._routed_at != self.registry.revision:
            self._routed_at = self.registry.revision
            self._routed.clear()
        # Thousands of workers have few models.
        key = (*worker.models, worker.labels.get(LABEL))
        found = self._routed.get(key)
        if found is None:
            asked = policies_over(worker, self.registry.models, self.registry.workers)
            names = (parameters.name_of(policy or self._settings.routing.policy) for policy in asked)
            found = self._routed[key] = "cache_aware" in names
        return found

    async def _publish_changes(self) -> None:
        changed = 0
        while True:
            await self.registry.dirty.wait()
            await asyncio.sleep(max(_PUBLISH_DELAY, changed * _PART_SECS))
            changed = await self.registry.publish_in_turns()
            self._kernels.look(self.registry.workers)

    async def _sweep_index(self) -> None:
        while self._region.index is not None:
            await asyncio.sleep(_SWEEP_INTERVAL)
            await asyncio.to_thread(self._region.index.sweep)

    async def _fade(self) -> None:
        while True:
            await asyncio.sleep(loads.COMPUTED_HALF_LIFE)
            loads.fade(self._region, self.registry.workers)

    async def _look_at_failures(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_INTERVAL)
            for monitor in list(self._monitors.values()):
                monitor.look()
                if self._settings.fleet.remove_unhealthy_workers and monitor.worker.status == "failed":
                    log.warning(
                        "worker is removed for good",
                        extra={"worker": monitor.worker.url, "worker_id": monitor.worker.id},
                    )
                    self.dismiss(monitor.worker, "unhealthy")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))


def _facts(spec: WorkerSpec) -> object:
    """What a monitor has to be begun anew for when it changes."""
    return (
        *(spec.runtime, spec.models, spec.health, spec.api_key),
        *(spec.max_connection_attempts, spec.load_monitor_interval_secs),
    )


def _report(task: asyncio.Task[None]) -> None:
    """A monitor never ends by itself: say so when a defect ended one."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("%s has ended", task.get_name(), exc_info=failure)
