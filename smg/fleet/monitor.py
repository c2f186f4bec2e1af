"""WorkerMonitor: one worker's life in control, from the first probe on (spec routing 4.3, engine-contract 2.7, 4.1).

Each monitor runs in a task of its own, so an engine that hangs delays no other. What a monitor learns goes to the
registry; nothing here routes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from smg._native import region as table
from smg.core import clock
from smg.core.errors import GatewayError
from smg.engines.base import Driver, EngineInfo
from smg.engines.finding import Finder
from smg.engines.transport.errors import RpcError
from smg.fleet import loads
from smg.fleet.health import Health, Thresholds
from smg.fleet.records import WorkerRecord
from smg.fleet.registry import Registry
from smg.fleet.sources import EmbeddedSource

log = logging.getLogger("smg.fleet")

Identified = Callable[[str], None]

# How often an engine is asked who it is although nothing speaks for a change, in seconds.
DESCRIBE_SECS = 60.0

# Characters of an error's detail that are shown as the reason of a worker's state.
_SHOWN = 300


class _Contradiction(GatewayError):
    """The engine is another one than the operator has configured: it is not to serve at all."""


class WorkerMonitor:
    """Probes one worker until its task is cancelled.

    ``runtime`` is the configured contract or empty, ``loads_interval`` the time between polls of its load, in seconds.
    ``probed`` is the Unix time of the last probe's end. ``probes`` bounds how many monitors probe at the same time;
    ``on_identified`` is called with the model's id when an engine has told something new, or its model still has no
    tokenizer. ``processes`` counts those of the gateway that engines can connect to.
    """

    def __init__(
        self,
        registry: Registry,
        region: table.Region,
        worker: WorkerRecord,
        thresholds: Thresholds,
        timeout: float,
        probes: asyncio.Semaphore,
        on_identified: Identified,
        runtime: str = "",
        loads_interval: float = 2.0,
        processes: int = 1,
    ) -> None:
        self.worker = worker
        self._registry = registry
        self._region = region
        self._timeout = timeout
        self._probes = probes
        self._on_identified = on_identified
        self._interval = thresholds.interval
        self._threshold = thresholds.failures
        self._loads_interval = loads_interval
        # A worker that an earlier control process knew goes on with its status and contract, and proves itself again.
        self._health = Health(thresholds, clock.monotonic(), worker.status)
        known = worker.runtime if worker.kind == "tokens" else ""
        self._finder = Finder(worker.url, runtime or known, worker.api_key, worker.labels, processes)
        self._driver: Driver | None = None
        self._identified = False
        self._described = 0.0
        self._connected = False
        # The model that is configured, once the engine has told the same.
        self._confirmed = ""
        self._seen_failures = 0
        # The last failure's message, and what is shown of it.
        self._told = ("", "")
        self.probed: float | None = None
        self._nudge = asyncio.Event()
        self._held = ""
        self._trusted = bool(worker.wanted.health.disable_health_check)
        self.obey()

    @property
    def driver(self) -> Driver | None:
        """The driver for control's own calls, None while the engine's contract is not known."""
        return self._driver

    async def run(self) -> None:
        """Probe the engine and poll its load. Ends by cancellation only."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe_for_ever())
            group.create_task(self._poll_for_ever())

    def look(self) -> None:
        """See to the connection, and to what request workers say: a new failure brings a ready worker's next probe
        forward. Behind a connection that broke another engine may answer next."""
        connected = self._finder.connected
        if self._connected and not connected:
            self._identified = False
            if self._health.status == "ready":
                self._nudge.set()
        self._connected = connected
        failures = self._region.worker_get(self.worker.slot, table.FAILURES)
        if failures > self._seen_failures and self._health.status == "ready":
            self._nudge.set()
        self._seen_failures = failures

    def obey(self) -> None:
        """Take over, at once, whether the worker's source holds it back."""
        held = self.worker.held
        if held:
            self._registry.set_status(self.worker.id, self._health.hold(clock.monotonic()), held)
        elif self._held:
            self._nudge.set()
        self._held = held

    async def close(self) -> None:
        """Close the connection (after the task has ended)."""
        if self._driver is not None:
            await self._driver.close()
        await self._finder.close()

    async def _probe_for_ever(self) -> None:
        while True:
            self._nudge.clear()
            if not self._held:
                async with self._probes:
                    await self._step()
                self.probed = clock.wall()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._health.wait()):
                    await self._nudge.wait()

    async def _poll_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._loads_interval)
            last = self._registry.load(self.worker.id)
            if self._health.status == "ready" and last is not None and last.fresh:
                continue
            if self._health.status == "ready" and self._driver is not None:
                report = await loads.poll(self._region, self.worker, self._driver)
                if report is not None:
                    self._registry.report_load(self.worker.id, report)
            else:
                loads.clear(self._region, self.worker)
                self._registry.report_load(self.worker.id, None)

    async def _step(self) -> None:
        """One probe and its consequences."""
        slot = self.worker.slot
        try:
            if self._region.worker_get(slot, table.FAILURES):
                # A restart may have been quicker than our probes: it could be another model by now.
                self._identified = False
            if not self._identified:
                await self._identify()
            elif clock.monotonic() - self._described >= DESCRIBE_SECS:
                await self._describe_again()
            if not self._streaming():
                if not await self._probe():
                    self._failed("the engine reports that it is not healthy")
                    return
                self._region.worker_set(slot, table.LAST_OK, _milliseconds())
        except _Contradiction as error:
            self._failed(error.message, certain=True)
            return
        except GatewayError as error:
            self._failed(error.message, error.detail)
            return
        except Exception:
            log.exception("probe broke", extra={"worker": self.worker.url, "worker_id": self.worker.id})
            self._failed("the probe itself failed")
            return
        self._region.worker_set(slot, table.FAILURES, 0)
        self._seen_failures = 0
        if not self._held:
            self._registry.set_status(self.worker.id, self._health.good())

    async def _identify(self) -> None:
        """Find the contract, read model and server information.

        Raises:
            GatewayError: nobody answers, or nobody who is known.
        """
        if self._driver is None:
            self._driver = await self._finder.find()
        driver = self._driver
        try:
            info = await driver.info()
        except GatewayError as error:
            if not self._finder.scheme or (isinstance(error, RpcError) and error.rpc == "UNIMPLEMENTED"):
                # Another engine may answer at this address now.
                self._driver = None
                await self._finder.forget(driver)
            raise
        self._check_model(info)
        self._identified = True
        self._described = clock.monotonic()
        self._connected = self._finder.connected
        before = self._registry.info(self.worker.id)
        news = before != info
        if before is not None:
            self._tell_change(_identity(self.worker.runtime, before), _identity(driver.runtime, info))
        self._registry.identify(self.worker.id, driver.runtime, info, driver.capabilities, driver.kind)
        if driver.kind == "tokens":
            self._see_to_tokenizers(news)

    async def _describe_again(self) -> None:
        """Ask once more who the engine is; whether it is well is for the probe to say.

        Raises:
            GatewayError: it is another one.
        """
        self._described = clock.monotonic()
        try:
            await self._identify()
        except GatewayError as error:
            if self._driver is None or isinstance(error, _Contradiction):
                raise

    def _check_model(self, info: EngineInfo) -> None:
        """Raise _Contradiction when the engine had the configured model and has it no more.

        A configured name that the engine never told is the operator's own for whatever it serves.
        """
        wanted = self.worker.wanted
        named = {card.id for card in wanted.models} or {wanted.labels.get("served_model_name", "")}
        told = {info.model_id, *info.models}
        if confirmed := next(iter(sorted(named & told - {""})), ""):
            self._confirmed = confirmed
        elif self._confirmed in named - {""}:
            message = f"the engine serves '{info.model_id}' now, and is configured for '{self._confirmed}'"
            raise _Contradiction("worker_failed", message, worker_fault=True)

    def _tell_change(self, before: dict[str, str], now: dict[str, str]) -> None:
        if before != now:
            changed = {name: value for name, value in now.items() if value != before[name]}
            old = {name: before[name] for name in changed}
            log.warning(
                "another engine answers",
                extra={"worker": self.worker.url, "worker_id": self.worker.id, "before": old, "now": changed},
            )

    def _see_to_tokenizers(self, news: bool) -> None:
        for name in self.worker.models:
            # An engine that is unwell is identified again with every probe; its tokenizer is not to be fetched each
            # time.
            if news or not self._registry.has_tokenizer(name):
                self._on_identified(name)

    async def _probe(self) -> bool:
        assert self._driver is not None
        if self._trusted:
            return True
        return await self._driver.health(self._timeout, thorough=self._health.suspect)

    def _streaming(self) -> bool:
        """Whether tokens came within the last half interval: proof enough, without asking."""
        if self._health.suspect or self._region.worker_get(self.worker.slot, table.FAILURES):
            return False
        age = _milliseconds() - self._region.worker_get(self.worker.slot, table.LAST_OK)
        return age < self._interval * 1000 / 2

    def _failed(self, reason: str, detail: str = "", *, certain: bool = False) -> None:
        """A probe failed; ``certain``: no further one is needed to know that the engine must not serve.

        ``detail`` is shown with the reason as it was in the log: one that changes with each probe changes no record.
        """
        # Whoever answers next may be another engine, or the same one with another model.
        self._identified = False
        if self._held:
            return
        passive = self._threshold if certain else self._region.worker_get(self.worker.slot, table.FAILURES)
        before = self._health.status
        status = self._health.bad(clock.monotonic(), passive)
        news = before != status or self._health.failures == 1
        if news or self._told[0] != reason:
            line = " ".join(detail.split())
            self._told = reason, f"{reason}: {line[:_SHOWN]}" if line else reason
        if news:
            starting = self.worker.origin == EmbeddedSource.name and status == "pending"
            log.log(
                logging.INFO if starting else logging.WARNING,
                "probe failed",
                extra={"worker": self.worker.url, "worker_id": self.worker.id, "reason": reason, "error": detail},
            )
        self._registry.set_status(self.worker.id, status, self._told[1])


def _identity(runtime: str, info: EngineInfo) -> dict[str, str]:
    """What makes an engine another one, for people."""
    models = ",".join(info.models or (info.model_id,))
    return {"runtime": runtime, "models": models, "model_path": info.model_path, "tokenizer": info.tokenizer_path}


def _milliseconds() -> int:
    return int(clock.monotonic() * 1000)
