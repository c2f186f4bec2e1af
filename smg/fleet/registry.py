"""Registry: control's record of workers and models, and the only writer of the region's snapshot (spec routing 4.2).

A control process that starts while a snapshot is there goes on from it: ids, slots and status stay, so request workers
and their counters notice nothing.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from smg._native import region as table
from smg.core import clock, ids
from smg.core.errors import GatewayError
from smg.engines.base import EngineInfo
from smg.engines.capabilities import offered
from smg.engines.table import adapter
from smg.fleet.loads import LoadReport
from smg.fleet.models import derive
from smg.fleet.records import (
    STATUS_CODES,
    STATUS_NAMES,
    FleetSnapshot,
    ModelRecord,
    Status,
    TokenizerRecord,
    WorkerRecord,
)

log = logging.getLogger("smg.fleet")

EXACT = 1  # plane of the prefix index


class Registry:
    """Workers and models. ``dirty`` is set when the published snapshot is behind; ``publish`` clears it."""

    def __init__(self, region: table.Region) -> None:
        self._region = region
        self._infos: dict[str, EngineInfo] = {}
        self._loads: dict[str, LoadReport] = {}
        self._configured: dict[str, dict[str, str]] = {}
        self.dirty = asyncio.Event()
        snapshot = _published(region)
        self._workers = {worker.id: worker for worker in snapshot.workers}
        self._models = {model.id: model for model in snapshot.models}
        self._tokenizers = {record.id: record for record in snapshot.tokenizers}
        self._take_over_index()
        for worker in self._workers.values():
            worker.status = STATUS_NAMES.get(region.worker_get(worker.slot, table.STATUS), worker.status)

    @property
    def workers(self) -> list[WorkerRecord]:
        return list(self._workers.values())

    @property
    def models(self) -> list[ModelRecord]:
        return list(self._models.values())

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
        return self._models.get(id)

    def by_url(self, url: str) -> WorkerRecord | None:
        return next((worker for worker in self._workers.values() if worker.url == url), None)

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

    def add(
        self, url: str, *, labels: dict[str, str] | None = None, priority: int = 50, cost: float = 1.0
    ) -> WorkerRecord:
        """Add a worker as ``pending``, or return the one that has this URL already.

        Raises:
            GatewayError: ``overloaded`` when all slots of the region are taken.
        """
        found = self.by_url(url)
        if found is not None:
            self._configured[found.id] = labels or {}
            return found
        slot = self._free_slot()
        worker = WorkerRecord(
            id=str(ids.uuid7()), slot=slot, url=url, labels=labels or {}, priority=priority, cost=cost
        )
        self._configured[worker.id] = labels or {}
        self._region.worker_reset(slot)
        if self._region.index is not None:
            self._region.index.admit(slot)
        self._region.worker_set(slot, table.STATUS, STATUS_CODES["pending"])
        self._workers[worker.id] = worker
        self.dirty.set()
        return worker

    def remove(self, id: str) -> None:
        """Forget a worker. Its slot is free once the snapshot without it is published, which happens here."""
        worker = self._workers.pop(id, None)
        if worker is None:
            return
        self._infos.pop(id, None)
        self._loads.pop(id, None)
        self._configured.pop(id, None)
        self._derive()
        self.publish()
        if self._region.index is not None:
            self._region.index.dismiss(worker.slot)
        self._region.worker_reset(worker.slot)

    def identify(self, id: str, runtime: str, info: EngineInfo) -> None:
        """Take over what an engine told: contract, features, model, labels (configured labels win).

        Raises:
            ValueError: ``runtime`` is no contract's name.
        """
        worker = self._workers[id]
        if self._infos.get(id) == info and worker.runtime == runtime:
            return
        worker.features = offered(adapter(runtime).capabilities, info)
        self._infos[id] = info
        worker.runtime = runtime
        worker.models = [info.model_id] if info.model_id else []
        worker.labels = {**info.labels, **self._configured.get(id, {})}
        self._derive()
        self.dirty.set()

    def set_status(self, id: str, status: Status, reason: str = "") -> None:
        """Change a worker's status: in the worker table at once, in the snapshot with the next publication."""
        worker = self._workers[id]
        if (worker.status, worker.reason) == (status, reason):
            return
        level = logging.WARNING if status in ("not_ready", "failed") else logging.INFO
        if worker.status != status:
            log.log(level, "worker is %s", status, extra={"worker": worker.url, "reason": reason})
        worker.status = status
        worker.reason = reason
        self._region.worker_set(worker.slot, table.STATUS, STATUS_CODES[status])
        self.dirty.set()

    def set_tokenizer(self, model_id: str, directory: str, key: str, error: str = "", chat_template: str = "") -> None:
        """Record where a model's tokenizer is; with ``error`` set, a directory that is there already stays."""
        model = self._models.get(model_id)
        if model is None:
            return
        if not error:
            model.tokenizer_dir, model.tokenizer_key, model.chat_template = directory, key, chat_template
        model.tokenizer_error = error
        self.dirty.set()

    def publish(self) -> None:
        """Write the snapshot to the region. One that does not fit is logged, and the last one stays in force."""
        self.dirty.clear()
        version = self._region.snapshot_version() + 1
        snapshot = FleetSnapshot(version, self.workers, self.models, self.tokenizers)
        try:
            self._region.publish(msgspec.msgpack.encode(snapshot))
        except ValueError as error:
            log.error("the registry is too large to publish", extra={"error": str(error)})

    def _take_over_index(self) -> None:
        """Keep what known workers hold, as far as the gateway has sent it; what engines have told is gone with control.

        A slot without a worker may still have tickets: its worker was being removed when control died.
        """
        index = self._region.index
        if index is None:
            return
        slots = {worker.slot for worker in self._workers.values()}
        for slot in range(self._region.workers):
            if slot in slots:
                index.admit(slot)
                index.renew(slot)
            elif index.ticket(slot) or index.ticket(slot, EXACT):
                index.dismiss(slot)

    def _derive(self) -> None:
        self._models = {model.id: model for model in derive(self.workers, self._infos, self._models, clock.created)}

    def _free_slot(self) -> int:
        taken = {worker.slot for worker in self._workers.values()}
        slot = next((number for number in range(self._region.workers) if number not in taken), None)
        if slot is None:
            raise GatewayError("overloaded", f"all {self._region.workers} worker slots are taken")
        return slot


def _published(region: table.Region) -> FleetSnapshot:
    """The snapshot an earlier control process left, or an empty one."""
    version, blob = region.snapshot()
    if version == 0:
        return FleetSnapshot()
    try:
        return msgspec.msgpack.decode(blob, type=FleetSnapshot)
    except msgspec.MsgspecError as error:
        log.error("the registry of an earlier control process is unreadable", extra={"error": str(error)})
        return FleetSnapshot()
