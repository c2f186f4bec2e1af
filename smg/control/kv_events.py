"""KvSubscriptions: follows the KV events of all engines that send them, into the index's exact plane (spec routing 3).

A subscription is a task of its own with a back-off of its own. It is kept for workers whose model is routed by what
they hold, and begins anew when the worker's driver or slots change. Control is the only process that writes the exact
plane, so all of it happens on one event loop.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import TypeAlias

from smg._native.event_blocks import EventBlocks
from smg._native.prefix_index import PrefixIndex
from smg.core import clock
from smg.core.errors import GatewayError
from smg.engines.base import EngineLoad
from smg.engines.driver import GrpcDriver
from smg.engines.kv_events import KvBatch
from smg.engines.transport.errors import RpcError
from smg.fleet.kv_events import KvFeed, State
from smg.fleet.records import WorkerRecord
from smg.routing.index.facade import adapter_of, salt_of
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.control")

LOOK_SECS = 0.5
# A stream that is away for longer may have missed anything.
LOST_SECS = 1.0
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 30.0
_JITTER = 0.2
OnLoad: TypeAlias = Callable[[WorkerRecord, EngineLoad], None]
STATES: dict[State, int] = {"syncing": 1, "live": 2, "resync": 3}


def _nobody(_worker: WorkerRecord, _load: EngineLoad) -> None:
    """Nobody wants to know."""


class IndexPlace:
    """One slot of the shared index, for as long as its worker has it; a ``fleet.kv_events.Place``."""

    def __init__(self, index: PrefixIndex, slot: int, model: str) -> None:
        self._index = index
        self._slot = slot
        self._salt = salt_of(model, "tokens")
        self._generation = index.ticket(slot) >> 32

    def blocks(self, size: int) -> EventBlocks:
        return EventBlocks(self._index, self._slot, size, self._salt)

    def live(self, size: int) -> None:
        if self.ours():
            self._index.set_live(self._slot, size)

    def forget_sent(self) -> None:
        if self.ours():
            self._index.renew(self._slot, 0)
            self._generation = self._index.ticket(self._slot) >> 32

    def adapter(self, name: str) -> int:
        return adapter_of(name)

    def ours(self) -> bool:
        """Whether the slot is still the worker's."""
        return self._generation != 0 and self.current()

    def current(self) -> bool:
        """Whether nobody else has begun the slot anew."""
        return self._index.ticket(self._slot) >> 32 == self._generation


class Subscription:
    """One worker's stream: a KvFeed for each of its ranks that has a slot."""

    def __init__(
        self, worker: WorkerRecord, driver: GrpcDriver, index: PrefixIndex, metrics: Metrics, on_load: OnLoad
    ) -> None:
        self._on_load = on_load
        self.worker = worker
        self.driver = driver
        self.slots = tuple(worker.slots)
        model = worker.models[0]
        slots = {rank.number: rank.slot for rank in worker.ranks} or {0: worker.slot}
        self._places = {rank: IndexPlace(index, slot, model) for rank, slot in slots.items()}
        self.feeds = {rank: KvFeed(place) for rank, place in self._places.items()}
        self._metrics = metrics
        self._lost_at: float | None = None
        self._counted: dict[tuple[int, str], int] = {}

    async def run(self) -> None:
        """Subscribe, again and again; ends when the engine does not offer events."""
        backoff = _FIRST_BACKOFF
        while True:
            try:
                heard = await self._follow()
                reason = "ended"
            except RpcError as error:
                heard, reason = False, error.rpc.lower()
                if error.rpc == "UNIMPLEMENTED":
                    log.info(
                        "the engine sends no KV events", extra={"worker": self.worker.url, "worker_id": self.worker.id}
                    )
                    self._failed(reason)
                    return
                if error.rpc in ("DATA_LOSS", "OUT_OF_RANGE"):
                    # What was missed is not to be had any more, or the engine is another process now.
                    self.drop()
            except GatewayError as error:
                heard, reason = False, error.code
            except ValueError as error:
                heard, reason = False, "unreadable"
                log.warning(
                    "unreadable KV events",
                    extra={"worker": self.worker.url, "worker_id": self.worker.id, "error": str(error)},
                )
                self.drop()
            self._failed(reason)
            if self._lost_at is None:
                self._lost_at = clock.monotonic()
            backoff = _FIRST_BACKOFF if heard else min(2 * backoff, _LONGEST_BACKOFF)
            await asyncio.sleep(backoff * (1 + random.uniform(-_JITTER, _JITTER)))
            self.look(clock.monotonic())

    async def _follow(self) -> bool:
        """Read one stream to its end, or until a snapshot is needed; returns whether anything came."""
        heard = False
        async for batch in self.driver.kv_events(self._start()):
            heard = True
            self.look(clock.monotonic())
            self._lost_at = None
            if self._apply(batch):
                self.drop()
                break
        return heard

    def _start(self) -> int:
        """Where to go on. Ranks count on their own, so only a single one can."""
        [*lasts] = (feed.last for feed in self.feeds.values())
        return lasts[0] + 1 if len(lasts) == 1 and lasts[0] is not None else 0

    def _apply(self, batch: KvBatch) -> bool:
        if batch.load is not None:
            self._on_load(self.worker, batch.load)
        feed = self.feeds.get(batch.rank)
        if feed is None or not self._places[batch.rank].ours():
            return False
        if batch.timestamp > 0 and not batch.load_only:
            self._metrics.kv_event_lag_seconds.observe(max(0.0, clock.wall() - batch.timestamp), self.worker.id)
        return feed.apply(batch, clock.monotonic())

    def current(self) -> bool:
        """Whether its places are those of the worker now; they are not when another engine has come to its address."""
        return all(place.current() for place in self._places.values())

    def look(self, now: float) -> None:
        """Give up what a stream that is away for too long may have made wrong, and what has waited for too long."""
        if self._lost_at is not None and now - self._lost_at > LOST_SECS:
            self._lost_at = None
            self.drop()
        for feed in self.feeds.values():
            feed.expire(now)

    def drop(self) -> None:
        """Forget all blocks; the next subscription begins from the start."""
        for feed in self.feeds.values():
            feed.drop()

    def show(self) -> None:
        """Write state and counts to the metrics."""
        for rank, feed in self.feeds.items():
            labels = (self.worker.id, str(rank))
            self._metrics.kv_event_state.set(*labels, v=STATES[feed.state])
            self._metrics.kv_event_blocks.set(*labels, v=feed.size)
            for family, name, count in (
                (self._metrics.kv_events_total, "events", feed.events),
                (self._metrics.kv_event_gaps_total, "gaps", feed.gaps),
                (self._metrics.kv_event_resyncs_total, "resyncs", feed.resyncs),
                (self._metrics.kv_event_orphans_total, "orphans", feed.orphans),
                (self._metrics.kv_event_refused_total, "refused", feed.refused),
            ):
                before = self._counted.get((rank, name), 0)
                if count != before:
                    family.inc(*labels, amount=count - before)
                    self._counted[rank, name] = count

    def hide(self) -> None:
        """The subscription is over: it has no state and no blocks."""
        for rank in self.feeds:
            self._metrics.kv_event_state.set(self.worker.id, str(rank), v=0)
            self._metrics.kv_event_blocks.set(self.worker.id, str(rank), v=0)

    def _failed(self, reason: str) -> None:
        self._metrics.kv_event_subscription_failures_total.inc(self.worker.id, reason)


class KvSubscriptions:
    """Keeps a Subscription for every worker that ``wanted`` says so of, with the driver ``driver`` gives for it.

    ``on_load`` is told the loads that come with the events.
    """

    def __init__(
        self,
        index: PrefixIndex,
        metrics: Metrics,
        workers: Callable[[], list[WorkerRecord]],
        driver: Callable[[str], GrpcDriver | None],
        wanted: Callable[[WorkerRecord], bool],
        on_load: OnLoad = _nobody,
    ) -> None:
        self._on_load = on_load
        self._index = index
        self._metrics = metrics
        self._workers = workers
        self._driver = driver
        self._wanted = wanted
        self._running: dict[str, tuple[Subscription, asyncio.Task[None]]] = {}
        self._resets = index.counts()["resets"]

    async def run(self) -> None:
        """Follow the fleet until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(LOOK_SECS)
        finally:
            for id in list(self._running):
                await self._stop(id)

    async def look(self) -> None:
        """Start and end subscriptions, mend what a dead process has cost the index, show the state."""
        workers = {worker.id: worker for worker in self._workers()}
        for id, (subscription, _) in list(self._running.items()):
            worker = workers.get(id)
            if worker is None or not self._fits(subscription, worker):
                await self._stop(id)
        for worker in workers.values():
            driver = self._driver(worker.id)
            if worker.id not in self._running and driver is not None and self._follows(worker):
                subscription = Subscription(worker, driver, self._index, self._metrics, self._on_load)
                task = asyncio.create_task(subscription.run(), name=f"KV events of {worker.url}")
                task.add_done_callback(_report)
                self._running[worker.id] = subscription, task
        resets = self._index.counts()["resets"]
        for subscription, _ in self._running.values():
            subscription.look(clock.monotonic())
            for feed in subscription.feeds.values():
                feed.repair(emptied=resets != self._resets)
            subscription.show()
        self._resets = resets

    def _follows(self, worker: WorkerRecord) -> bool:
        """Whether there is something to follow: of several ranks behind one slot nobody could tell who holds what."""
        several = worker.labels.get("dp_size", "1") not in ("", "0", "1")
        features = worker.features or frozenset()
        return bool(
            "kv_events" in features
            and worker.models
            and (worker.status in ("ready", "not_ready") or worker.held)
            and (worker.ranks or not several)
            and self._wanted(worker)
        )

    def _fits(self, subscription: Subscription, worker: WorkerRecord) -> bool:
        return (
            subscription.slots == tuple(worker.slots)
            and subscription.worker.models[:1] == worker.models[:1]
            and subscription.driver is self._driver(worker.id)
            and subscription.current()
            and self._follows(worker)
        )

    async def _stop(self, id: str) -> None:
        subscription, task = self._running.pop(id)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, return_exceptions=True)
        subscription.drop()
        subscription.hide()


def _report(task: asyncio.Task[None]) -> None:
    """A subscription ends by itself only where there are no events: say so when a defect ended one."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("%s have ended", task.get_name(), exc_info=failure)
