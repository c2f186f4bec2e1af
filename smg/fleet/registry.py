"""Registry: control's record of workers and models, and the only writer of the region's snapshot (spec routing 4.2).

A control process that starts while a snapshot is there goes on from it: ids, slots and status stay, so request workers
and their counters notice nothing.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from smg._native import region as table
from smg.core import clock, ids
from smg.core.backends import BackendKind
from smg.core.errors import GatewayError
from smg.engines.base import EngineInfo
from smg.engines.capabilities import offered
from smg.engines.table import adapter
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.loads import LoadReport
from smg.fleet.models import derive, deriving
from smg.fleet.parts import WorkerParts
from smg.fleet.policies import Conflicts
from smg.fleet.published import AT_ONCE, PART, Published, encode, parts_of, read
from smg.fleet.ranks import ranks_of
from smg.fleet.records import (
    WILDCARD,
    FleetSnapshot,
    ModelRecord,
    RankRecord,
    Status,
    TokenizerRecord,
    WorkerRecord,
)
from smg.fleet.roles import role_of
from smg.fleet.rows import Rows
from smg.fleet.sources import WorkerSpec
from smg.fleet.steps import in_turns

log = logging.getLogger("smg.fleet")

# How often models are derived anew because something has changed while they were.
_TRIES = 3


class Registry:
    """Workers and models. ``dirty`` is set when the published snapshot is behind; ``publish`` clears it.

    ``revision`` grows with every change of a worker's record, a model's policy included, but not of a status.
    ``refused`` are URLs that an admin has removed. ``breakers`` are closed again for workers that come back.
    ``dp_aware``: data-parallel ranks get slots of their own and are routed to one by one.
    """

    def __init__(self, region: table.Region, breakers: CircuitBreakers | None = None, dp_aware: bool = False) -> None:
        self._region = region
        self._breakers = breakers
        self._dp_aware = dp_aware
        self._infos: dict[str, EngineInfo] = {}
        self._loads: dict[str, LoadReport] = {}
        self._conflicts = Conflicts()
        self.dirty = asyncio.Event()
        snapshot = _published(region)
        self._workers = {worker.id: worker for worker in snapshot.workers}
        self._by_url = {worker.url: worker for worker in snapshot.workers}
        self._models = {model.id: model for model in snapshot.models}
        self._stale = False  # whether the models are to be derived anew
        self.revision = 0
        self._looked = -1  # the revision that conflicts were looked for in
        self.refused = set(snapshot.refused)
        self._tokenizers = {record.id: record for record in snapshot.tokenizers}
        self._rows = Rows(region, {slot for worker in self._workers.values() for slot in worker.slots})
        self._parts = WorkerParts()
        for worker in self._workers.values():
            worker.status = self._rows.status(worker.slot) or worker.status
            self._parts.put(worker)

    @property
    def workers(self) -> list[WorkerRecord]:
        return list(self._workers.values())

    @property
    def models(self) -> list[ModelRecord]:
        return list(self._derived().values())

    @property
    def tokenizers(self) -> list[TokenizerRecord]:
        """Those that admins added, in the order they came."""
        return list(self._tokenizers.values())

    def put_tokenizer(self, record: TokenizerRecord) -> None:
        """Keep an added tokenizer, or what has changed about it."""
        self._tokenizers[record.id] = record
        self.dirty.set()

    def drop_tokenizer(self, id: str) -> None:
        """Forget an added tokenizer."""
        if self._tokenizers.pop(id, None) is not None:
            self.dirty.set()

    def added_tokenizer(self, names: Iterable[str]) -> TokenizerRecord | None:
        """The loaded tokenizer that was added under one of ``names``."""
        wanted = set(names)
        return next((one for one in self.tokenizers if one.status == "completed" and one.name in wanted), None)

    def worker(self, id: str) -> WorkerRecord | None:
        return self._workers.get(id)

    def model(self, id: str) -> ModelRecord | None:
        return self._derived().get(id)

    def by_url(self, url: str) -> WorkerRecord | None:
        return self._by_url.get(url)

    def has_tokenizer(self, model_id: str) -> bool:
        """Whether it is known where the model's tokenizer is. Asked for each worker that joins, so nothing is derived
        for a model that others serve already."""
        model = self._models.get(model_id) or self.model(model_id)
        return model is not None and bool(model.tokenizer_dir)

    def info(self, worker_id: str) -> EngineInfo | None:
        """What the worker's engine told this control process, None until it did."""
        return self._infos.get(worker_id)

    def load(self, worker_id: str) -> LoadReport | None:
        """What the worker's engine said of its load last, None while it has not or is away."""
        return self._loads.get(worker_id)

    def report_load(self, worker_id: str, report: LoadReport | None) -> None:
        """Keep what an engine said of its load; None forgets it."""
        if report is None or worker_id not in self._workers:
            self._loads.pop(worker_id, None)
        else:
            self._loads[worker_id] = report

    def add(self, spec: WorkerSpec, origin: str = "flags") -> WorkerRecord:
        """Add a worker as ``pending``, or let the one at this URL be as ``spec`` says.

        Raises:
            GatewayError: ``overloaded`` when all slots of the region are taken.
        """
        found = self.by_url(spec.url)
        if found is not None:
            if (found.spec, found.origin) != (spec, origin):
                found.spec, found.origin = spec, origin
                self._configure(found)
            return found
        worker = WorkerRecord(id=str(ids.uuid7()), slot=self._row("pending"), url=spec.url, origin=origin, spec=spec)
        self._workers[worker.id] = self._by_url[worker.url] = worker
        self._parts.put(worker)
        self._configure(worker)
        return worker

    def patch(self, id: str, fields: Mapping[str, Any]) -> WorkerRecord:
        """Change fields of a worker's spec; everything else about it stays as it is.

        Raises:
            GatewayError: ``worker_not_found``.
        """
        worker = self._workers.get(id)
        if worker is None:
            raise GatewayError("worker_not_found", f"there is no worker '{id}'")
        worker.patch = {**worker.patch, **fields}
        self._configure(worker)
        return worker

    def remove(self, id: str) -> None:
        """Forget a worker. Its slots are free once a snapshot without it is published: many may leave at once."""
        worker = self._workers.pop(id, None)
        if worker is None:
            return
        del self._by_url[worker.url]
        self._parts.drop(id)
        self._infos.pop(id, None)
        self._loads.pop(id, None)
        self._rows.leave(worker.slots)
        self._changed()

    def identify(
        self,
        id: str,
        runtime: str,
        info: EngineInfo,
        capabilities: frozenset[str] | None = None,
        kind: BackendKind = "tokens",
    ) -> None:
        """Take over what an engine told: contract, features, models, labels (configured labels win).

        ``capabilities`` are those of its driver, by default those of the contract ``runtime``.

        Raises:
            ValueError: ``runtime`` is no contract's name, and nothing else tells the capabilities.
        """
        worker = self._workers[id]
        features = offered(adapter(runtime).capabilities if capabilities is None else capabilities, info)
        if self._infos.get(id) == info and (worker.runtime, worker.kind, worker.features) == (runtime, kind, features):
            return
        before = _identity(worker, self._infos.get(id))
        worker.features = features
        self._infos[id] = info
        worker.runtime, worker.kind = runtime, kind
        self._configure(worker)
        if _differ(before, _identity(worker, info)):
            self._rows.begin_anew(worker.slots)

    def set_status(self, id: str, status: Status, reason: str = "") -> None:
        """Change a worker's status: in the worker table at once, in the snapshot with the next publication."""
        worker = self._workers[id]
        if (worker.status, worker.reason) == (status, reason):
            return
        level = logging.WARNING if status in ("not_ready", "failed") else logging.INFO
        if status == "ready" and worker.status in ("not_ready", "failed") and self._breakers is not None:
            # It was away and has passed a thorough probe: what happened before is no longer about it.
            self._breakers.reset(worker)
        if worker.status != status:
            log.log(
                level, "worker is %s", status, extra={"worker": worker.url, "worker_id": worker.id, "reason": reason}
            )
        worker.status = status
        worker.reason = reason
        self._parts.touch(id)
        self._rows.tell(worker.slots, status)
        self.dirty.set()

    def set_policy(self, model_id: str, policy: str) -> None:
        """Route a model by ``policy`` from the next snapshot on; empty: as its workers' labels or the flags say.

        Raises:
            GatewayError: ``model_not_found``.
        """
        model = self.model(model_id)
        if model is None:
            raise GatewayError("model_not_found", f"the model '{model_id}' does not exist", param="model")
        model.policy = policy
        self.revision += 1
        self.dirty.set()

    def set_tokenizer(self, model_id: str, directory: str, key: str, error: str = "", chat_template: str = "") -> None:
        """Record where a model's tokenizer is; with ``error`` set, a directory that is there already stays."""
        model = self.model(model_id)
        if model is None:
            return
        if not error:
            model.tokenizer_dir, model.tokenizer_key, model.chat_template = directory, key, chat_template
        model.tokenizer_error = error
        self.dirty.set()

    def publish(self) -> None:
        """Write the snapshot to the region. One that does not fit is logged, and the last one stays in force."""
        self.dirty.clear()
        published = Published(
            version=self._region.snapshot_version() + 1,
            workers=self._parts.packed(),
            models=parts_of(self.models),
            refused=sorted(self.refused),
            tokenizers=self.tokenizers,
        )
        try:
            self._region.publish(encode(published))
        except ValueError as error:
            log.error("the registry is too large to publish", extra={"error": str(error)})
        self._rows.clear(rest=self._large)

    async def publish_in_turns(self) -> int:
        """Publish like ``publish``, with other tasks' turns in between; returns how many parts had changed.

        Warns of workers that do not agree.
        """
        changed = self._parts.behind
        await self._derive_in_turns()
        while self._parts.behind > AT_ONCE:
            self._parts.pack_one()
            await asyncio.sleep(0)
        self.publish()
        if self._looked != self.revision:
            self._looked = self.revision
            await in_turns(self._conflicts.look(self.models, self.workers))
        return changed

    def _configure(self, worker: WorkerRecord) -> None:
        """Make the record what spec, patch and engine say together."""
        spec, info = worker.wanted, self._infos.get(worker.id)
        worker.priority, worker.cost, worker.api_key = spec.priority, spec.cost, spec.api_key
        resilience = spec.resilience if spec.resilience.given else None
        if worker.resilience != resilience:
            worker.resilience = resilience
            if self._breakers is not None:
                # What was counted by other numbers means nothing by these.
                self._breakers.reset(worker)
        worker.labels = {**(worker.labels if info is None else info.labels), **spec.labels}
        if spec.models:
            worker.models = [card.id for card in spec.models]
        elif info is not None:
            told = list(info.models) or [info.model_id or WILDCARD]
            named = spec.labels.get("served_model_name")
            worker.models = [named] if named else told
        worker.role = role_of(worker.labels)
        unable = worker.features is not None and "disaggregation" not in worker.features
        if worker.role in ("prefill", "decode") and unable:
            log.error(
                "engines of this contract cannot be paired",
                extra={"worker": worker.url, "worker_id": worker.id, "runtime": worker.runtime},
            )
        self._parts.touch(worker.id)
        self._set_ranks(worker)
        self._changed()

    def _set_ranks(self, worker: WorkerRecord) -> None:
        """Have a slot for each of the worker's data-parallel ranks, if they are routed to one by one."""
        wanted = ranks_of(worker, dp_aware=self._dp_aware)
        if tuple(rank.number for rank in worker.ranks) == tuple(wanted):
            return
        for rank in worker.ranks:
            self._rows.vacate(rank.slot, rest=self._large)
        worker.ranks = []
        for number in wanted:
            worker.ranks.append(RankRecord(number, self._row(worker.status)))
            self._parts.touch(worker.id)

    def _changed(self) -> None:
        """Something is otherwise with the workers. Their models are derived when they are asked for, because thousands
        may join at once."""
        self._stale = True
        self.revision += 1
        self.dirty.set()

    def _derived(self) -> dict[str, ModelRecord]:
        if self._stale:
            self._take(derive(self.workers, self._infos, self._models, clock.created))
        return self._models

    def _take(self, models: Iterable[ModelRecord]) -> None:
        self._stale = False
        self._models = {model.id: model for model in models}

    async def _derive_in_turns(self) -> None:
        """Derive the models ahead, with other tasks' turns in between. Where the fleet changes all the time, this is
        left to whoever asks for them."""
        for _ in range(_TRIES):
            if not self._stale:
                return
            revision = self.revision
            models = await in_turns(deriving(self.workers, self._infos, self._models, clock.created))
            # Who asked for them in the meantime may also have changed one of them.
            if self._stale and revision == self.revision:
                self._take(models)
                return

    def _row(self, status: Status) -> int:
        """Take a row of the region. Raises GatewayError ``overloaded`` when all are taken."""
        if not self._rows.free and self._rows.leaving:
            self.publish()
        if not self._rows.free:
            raise GatewayError("overloaded", f"all {self._region.workers} worker slots are taken")
        return self._rows.occupy(status)

    @property
    def _large(self) -> bool:
        """Request workers read a larger fleet than this in turns, and know until then who was in a slot."""
        return len(self._workers) > AT_ONCE * PART


def _published(region: table.Region) -> FleetSnapshot:
    """The snapshot an earlier control process left, or an empty one."""
    version, blob = region.snapshot()
    if version == 0:
        return FleetSnapshot()
    try:
        return read(blob)
    except msgspec.MsgspecError as error:
        log.error("the registry of an earlier control process is unreadable", extra={"error": str(error)})
        return FleetSnapshot()


def _identity(worker: WorkerRecord, info: EngineInfo | None) -> tuple[object, ...]:
    """What makes an engine another one; of what is not known, something empty."""
    files = (info.model_path, info.tokenizer_path) if info is not None else ("", "")
    return (worker.runtime, tuple(worker.models), *files)


def _differ(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Whether something that was known is known to be otherwise now."""
    return any(old and new and old != new for old, new in zip(before, now, strict=True))
