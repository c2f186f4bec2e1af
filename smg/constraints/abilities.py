"""What the engines of a model can be asked for, where constraints have a choice (spec engine-contract 2.4, 9)."""

from collections.abc import Sequence

import msgspec

from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord

# What an engine tells when its constraints wait for the end of the reasoning by themselves.
_START, _WAITS = "constrained_decoding_start", "after_reasoning"
# Contracts with a field that asks for reasoning before the constraint.
_ASKED_TO_WAIT = frozenset({"sglang"})


class Abilities(msgspec.Struct, frozen=True):
    """``tags``: every engine takes structural tags, ``grammars``: EBNF; ``schemas``: some engine takes JSON schemas.

    ``waits``: every engine lets the model think before a constraint applies. Otherwise the constraint itself has to
    leave room for it.
    """

    tags: bool = True
    grammars: bool = True
    schemas: bool = True
    waits: bool = False


class KnownAbilities:
    """The abilities of the models of one snapshot, each worked out once. One object per process."""

    def __init__(self) -> None:
        self._snapshot: FleetSnapshot | None = None
        self._known: dict[str, Abilities] = {}

    def of(self, snapshot: FleetSnapshot, model: ModelRecord) -> Abilities:
        """The abilities of ``model``, which is in ``snapshot``."""
        if snapshot is not self._snapshot:
            self._known = self._known if snapshot.alike(self._snapshot) else {}
            self._snapshot = snapshot
        found = self._known.get(model.id)
        if found is None:
            names = {model.id, *model.aliases}
            workers = [worker for worker in snapshot.workers if not names.isdisjoint(worker.models)]
            found = self._known[model.id] = abilities(workers)
        return found


def abilities(workers: Sequence[WorkerRecord]) -> Abilities:
    """The abilities of ``workers``, all of one model. What an engine has not told it is taken to have."""
    return Abilities(
        tags=all(_has(worker, "structural_tag") for worker in workers),
        grammars=all(_has(worker, "grammar") for worker in workers),
        schemas=not workers or any(_has(worker, "json_schema") for worker in workers),
        waits=bool(workers) and all(_waits(worker) for worker in workers),
    )


def _has(worker: WorkerRecord, feature: str) -> bool:
    return worker.features is None or feature in worker.features


def _waits(worker: WorkerRecord) -> bool:
    return worker.runtime in _ASKED_TO_WAIT or worker.labels.get(_START) == _WAITS
