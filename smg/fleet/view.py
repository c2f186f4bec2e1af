"""FleetView: what a request worker knows of the fleet, at the price of one comparison per request.

The snapshot is decoded again only when control has published a new one; the status, which changes more often, is read
from the region's worker table each time. When control is dead both simply stay as they are (DESIGN 2).
"""

from collections.abc import Callable

import msgspec

from smg._native import region as table
from smg.fleet.records import STATUS_CODES, STATUS_NAMES, FleetSnapshot, Status, WorkerRecord

_decode = msgspec.msgpack.Decoder(FleetSnapshot).decode


class FleetView:
    """One process's view of the fleet in ``region``. Not thread safe: use it on the event loop."""

    def __init__(self, region: table.Region) -> None:
        self._region = region
        self._version = 0
        self._snapshot = FleetSnapshot()
        self._workers: dict[str, WorkerRecord] = {}
        self._callbacks: list[Callable[[FleetSnapshot], None]] = []

    def snapshot(self) -> FleetSnapshot:
        """Return the current snapshot (do not change it); callbacks run first when it is a new one."""
        if self._region.snapshot_version() != self._version:
            self._read()
        return self._snapshot

    def worker(self, id: str) -> WorkerRecord | None:
        """Find a worker by its id."""
        self.snapshot()
        return self._workers.get(id)

    def status(self, worker: WorkerRecord) -> Status:
        """Return the worker's status now; one whose slot is free has left the fleet and counts as ``failed``."""
        return STATUS_NAMES.get(self._region.worker_get(worker.slot, table.STATUS), "failed")

    def ready(self, worker: WorkerRecord) -> bool:
        """Tell whether the worker may be routed to now."""
        return self._region.worker_get(worker.slot, table.STATUS) == STATUS_CODES["ready"]

    def failed(self, worker: WorkerRecord) -> None:
        """Report a transport failure on the worker: control probes it at once."""
        self._region.worker_add(worker.slot, table.FAILURES, 1)

    def on_change(self, callback: Callable[[FleetSnapshot], None]) -> Callable[[], None]:
        """Call ``callback`` with every new snapshot this process reads; returns what takes it back."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def _read(self) -> None:
        self._version, blob = self._region.snapshot()
        self._snapshot = _decode(blob)
        self._workers = {worker.id: worker for worker in self._snapshot.workers}
        for callback in list(self._callbacks):
            callback(self._snapshot)
