"""A fleet in memory: what the router reads of a FleetView, over a real region."""

from smg._native.region import Region
from smg.fleet.records import STATUS_CODES, STATUS_NAMES, FleetSnapshot, ModelRecord, Status, WorkerRecord

PROCESS = 1


class FakeFleet:
    """Workers by model, each in a slot of ``region``; ``set`` moves a worker to another status."""

    def __init__(self, models: dict[str, list[str]], processes: int = 3, slots: int = 64, **fields: object) -> None:
        self.region = Region.create(processes=processes, workers=slots, series=512, snapshot_bytes=1 << 16)
        names = sorted({worker for workers in models.values() for worker in workers})
        self.workers = {
            name: WorkerRecord(
                name,
                slot,
                f"grpc://{name}",
                runtime="vllm",
                models=[model for model, workers in models.items() if name in workers],
            )
            for slot, name in enumerate(names)
        }
        assert self.region.index is not None
        self.index = self.region.index
        self._snapshot = FleetSnapshot(
            1, list(self.workers.values()), [ModelRecord(model, created=7, **fields) for model in models]
        )
        for name in names:
            self.set(name, "ready")
            self.index.admit(self.workers[name].slot)

    def set(self, name: str, status: Status) -> None:
        self.region.worker_set(self.workers[name].slot, 0, STATUS_CODES[status])

    def set_only(self, *names: str) -> None:
        """These workers are ready and no others."""
        for name in self.workers:
            self.set(name, "ready" if name in names else "not_ready")

    def snapshot(self) -> FleetSnapshot:
        return self._snapshot

    def status(self, worker: WorkerRecord) -> Status | None:
        return STATUS_NAMES.get(self.region.worker_get(worker.slot, 0))

    def inflight(self) -> dict[str, tuple[int, int]]:
        return {name: self.region.inflight(worker.slot) for name, worker in self.workers.items()}

    def idle(self) -> bool:
        """True when no request is counted anywhere."""
        return self.region.requests_total() == 0 and set(self.inflight().values()) <= {(0, 0)}
