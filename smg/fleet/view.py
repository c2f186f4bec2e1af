"""FleetView: what a request worker knows of the fleet, at the price of one comparison per request.

The snapshot is read again only when control has published a new one, and of that only what has changed; the status,
which changes more often, is read from the region's worker table each time. When control is dead both simply stay as
they are (DESIGN 2).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

import msgspec

from smg._native import region as table
from smg.core.turns import turn
from smg.fleet.published import AT_ONCE, Reading
from smg.fleet.records import STATUS_CODES, STATUS_NAMES, FleetSnapshot, Status, WorkerRecord

log = logging.getLogger("smg.fleet")


class FleetView:
    """One process's view of the fleet in ``region``. Not thread safe: use it on the event loop.

    Where a loop runs, a new snapshot of a large fleet is read in turns; until it is there as a whole, ``snapshot`` is
    the one before. Small fleets, and everything where no loop runs, are read at once.
    """

    def __init__(self, region: table.Region) -> None:
        self._region = region
        self._version = 0
        self._read = Reading()
        self._snapshot = self._read.snapshot()
        self._reader: asyncio.Task[None] | None = None
        self._callbacks: list[Callable[[FleetSnapshot], None]] = []
        self._preparing: list[Callable[[FleetSnapshot], Iterator[None]]] = []

    def begin(self) -> None:
        """Read what is published at once, whatever its size: before anybody is served, nobody waits for the loop."""
        self._look(at_once=True)

    def snapshot(self) -> FleetSnapshot:
        """Return the current snapshot (do not change it); callbacks run first when it is a new one."""
        if self._region.snapshot_version() != self._version and (self._reader is None or self._reader.done()):
            self._look()
        return self._snapshot

    def worker(self, id: str) -> WorkerRecord | None:
        """Find a worker by its id."""
        self.snapshot()
        return self._read.worker(id)

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

    def before_change(self, prepare: Callable[[FleetSnapshot], Iterator[None]]) -> None:
        """Have ``prepare`` work in turns, too, for a snapshot that was read in turns, before it is the current one."""
        self._preparing.append(prepare)

    def _look(self, at_once: bool = False) -> None:
        """Read what is published, at once or in turns."""
        self._version, blob = self._region.snapshot()
        if self._version == 0:
            return
        reading = Reading(blob, self._read)
        if at_once or reading.parts <= AT_ONCE or (loop := _running()) is None:
            while reading.left:
                reading.step()
            self._take(reading, reading.snapshot())
        else:
            self._reader = loop.create_task(self._read_in_turns(reading), name="reader of the fleet")

    async def _read_in_turns(self, reading: Reading) -> None:
        try:
            while reading.left:
                await turn()
                reading.step()
            await turn()
            snapshot = reading.snapshot()
            for prepare in self._preparing:
                for _ in prepare(snapshot):
                    await turn()
            self._take(reading, snapshot)
        except msgspec.MsgspecError as error:
            log.error("the published registry is unreadable", extra={"error": str(error)})

    def _take(self, reading: Reading, snapshot: FleetSnapshot) -> None:
        """What has been read is what there is from now on."""
        self._read = reading
        self._snapshot = snapshot
        for callback in list(self._callbacks):
            callback(self._snapshot)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
