"""Serving: who serves which model in one snapshot of the fleet, and the pools that requests for it choose from."""

from collections.abc import Iterator

from smg._native.region import Region
from smg.core.backends import BackendKind
from smg.fleet.policies import policy_of
from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord
from smg.routing.models import resolve
from smg.routing.pairing import Pools

# Workers that are looked at in one step: half a millisecond.
SLICE = 1024


class Serving:
    """Of ``snapshot``, which may be replaced by one that is alike. Pools are made when their model is first asked for,
    or ahead of that by ``prepare``."""

    def __init__(self, snapshot: FleetSnapshot, region: Region) -> None:
        self.snapshot = snapshot
        self._region = region
        self._kinds: set[BackendKind] = set()
        self._by_name: dict[str, list[WorkerRecord]] = {}
        self._pools: dict[str, Pools] = {}
        self._reading = self._read()

    @property
    def kinds(self) -> frozenset[BackendKind]:
        """The kinds of backend there are in the fleet."""
        self._finish()
        return frozenset(self._kinds)

    def of(self, name: str) -> Pools:
        """The workers of the model called ``name``. Raises GatewayError when there is no such model."""
        found = self._pools.get(name)
        if found is None:
            # By its own id: clients may invent names that a worker for any model takes.
            model = resolve(self.snapshot, name)
            found = self._pools.get(model.id)
            if found is None:
                self._finish()
                workers = self._workers(model)
                found = self._pools[model.id] = Pools(workers, self._region, policy_of(model, workers))
        return found

    def prepare(self, before: "Serving") -> Iterator[None]:
        """Do in steps what requests would wait for, as far as those to ``before`` have asked for it."""
        for _ in self._reading:
            yield
        for model in self.snapshot.models:
            old = before._pools.get(model.id)
            if old is not None:
                workers = self._workers(model)
                policy = policy_of(model, workers)
                yield
                pools = self._pools[model.id] = Pools(workers, self._region, policy)
                yield
                for leg, last in zip(pools.legs, old.legs, strict=True):
                    for _ in leg.prepare(last):
                        yield

    def _finish(self) -> None:
        for _ in self._reading:
            pass

    def _read(self) -> Iterator[None]:
        """Find out who serves what, some workers per step."""
        workers = self.snapshot.workers
        for start in range(0, len(workers), SLICE):
            for worker in workers[start : start + SLICE]:
                self._kinds.add(worker.kind)
                for name in dict.fromkeys(worker.models):
                    self._by_name.setdefault(name, []).append(worker)
            yield

    def _workers(self, model: ModelRecord) -> list[WorkerRecord]:
        names = {model.id, *model.aliases}
        serving = [self._by_name[name] for name in names if name in self._by_name]
        if len(serving) > 1:
            # In the fleet's order, and each once.
            serving = [[worker for worker in self.snapshot.workers if not names.isdisjoint(worker.models)]]
        return serving[0] if serving else []
