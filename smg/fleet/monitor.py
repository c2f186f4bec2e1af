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
from smg.engines.driver import GrpcDriver
from smg.engines.probe import detect
from smg.engines.table import ADAPTERS, adapter
from smg.engines.transport.errors import RpcError
from smg.engines.transport.grpcio import GrpcioTransport
from smg.fleet import loads
from smg.fleet.health import Health, Thresholds
from smg.fleet.records import WorkerRecord
from smg.fleet.registry import Registry

log = logging.getLogger("smg.fleet")

# Seconds between polls of an engine's load.
_LOADS_INTERVAL = 2.0

Identified = Callable[[str], None]


class WorkerMonitor:
    """Probes one worker until its task is cancelled.

    ``runtime`` is the configured contract or empty. ``probes`` bounds how many monitors probe at the same time;
    ``on_identified`` is called with the model's id when an engine has told something new, or its model still has no
    tokenizer.
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
    ) -> None:
        self.worker = worker
        self._registry = registry
        self._region = region
        self._timeout = timeout
        self._probes = probes
        self._on_identified = on_identified
        self._interval = thresholds.interval
        # A worker that an earlier control process knew goes on with its status and contract, and proves itself again.
        self._health = Health(thresholds, clock.monotonic(), worker.status)
        self._runtime = runtime or worker.runtime
        self._transport = GrpcioTransport(worker.url)
        self._driver: GrpcDriver | None = None
        self._identified = False
        self._seen_failures = 0
        self._nudge = asyncio.Event()

    @property
    def driver(self) -> GrpcDriver | None:
        """The driver for control's own calls, None while the engine's contract is not known."""
        return self._driver

    async def run(self) -> None:
        """Probe the engine and poll its load. Ends by cancellation only."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe_for_ever())
            group.create_task(self._poll_for_ever())

    def look(self) -> None:
        """Read what request workers say: a new transport failure on a ready worker brings the next probe forward."""
        failures = self._region.worker_get(self.worker.slot, table.FAILURES)
        if failures > self._seen_failures and self._health.status == "ready":
            self._nudge.set()
        self._seen_failures = failures

    async def close(self) -> None:
        """Close the connection (after the task has ended)."""
        await (self._driver.close() if self._driver is not None else self._transport.close())

    async def _probe_for_ever(self) -> None:
        while True:
            self._nudge.clear()
            async with self._probes:
                await self._step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._health.wait()):
                    await self._nudge.wait()

    async def _poll_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_LOADS_INTERVAL)
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
            if not self._streaming():
                if not await self._probe():
                    self._failed("the engine reports that it is not healthy")
                    return
                self._region.worker_set(slot, table.LAST_OK, _milliseconds())
        except GatewayError as error:
            self._failed(error.message, error.detail)
            return
        except Exception:
            log.exception("probe broke", extra={"worker": self.worker.url})
            self._failed("the probe itself failed")
            return
        self._region.worker_set(slot, table.FAILURES, 0)
        self._seen_failures = 0
        self._registry.set_status(self.worker.id, self._health.good())

    async def _identify(self) -> None:
        """Find the contract, read model and server information. Raises GatewayError."""
        if self._driver is None:
            if not self._runtime:
                self._runtime = await detect(self._transport, [make() for make in ADAPTERS.values()])
            self._driver = GrpcDriver(self.worker.url, adapter(self._runtime), self._transport)
        try:
            info = await self._driver.info()
        except RpcError as error:
            if error.rpc == "UNIMPLEMENTED":
                # Another engine answers at this address now.
                self._driver, self._runtime = None, ""
            raise
        self._identified = True
        news = self._registry.info(self.worker.id) != info
        self._registry.identify(self.worker.id, self._runtime, info)
        model = self._registry.model(info.model_id)
        # An engine that is unwell is identified again with every probe; its tokenizer is not to be fetched each time.
        if news or model is None or not model.tokenizer_dir:
            self._on_identified(info.model_id)

    async def _probe(self) -> bool:
        assert self._driver is not None
        return await self._driver.health(self._timeout, thorough=self._health.suspect)

    def _streaming(self) -> bool:
        """Whether tokens came within the last half interval: proof enough, without asking."""
        if self._health.suspect or self._region.worker_get(self.worker.slot, table.FAILURES):
            return False
        age = _milliseconds() - self._region.worker_get(self.worker.slot, table.LAST_OK)
        return age < self._interval * 1000 / 2

    def _failed(self, reason: str, detail: str = "") -> None:
        passive = self._region.worker_get(self.worker.slot, table.FAILURES)
        before = self._health.status
        status = self._health.bad(clock.monotonic(), passive)
        # Whoever answers next may be another engine, or the same one with another model.
        self._identified = False
        if before != status or self._health.failures == 1:
            log.warning("probe failed", extra={"worker": self.worker.url, "reason": reason, "error": detail})
        self._registry.set_status(self.worker.id, status, "" if status == "ready" else reason)


def _milliseconds() -> int:
    return int(clock.monotonic() * 1000)
