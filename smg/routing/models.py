"""Which model a request means (field case RO-01)."""

from smg.core import clock, ids
from smg.core.errors import GatewayError
from smg.fleet.records import WILDCARD, FleetSnapshot, ModelRecord, WorkerRecord

_NAMED = 8
# Characters of what a client calls a model that are logged.
_LONGEST_NAME = 100
# Seconds that a new engine has for its first answer before it is no reason to wait for any name there may be: most
# models are loaded by then, and a mistyped name or address must not have clients try again for ever.
_FIRST_ANSWER = 300.0


def resolve(snapshot: FleetSnapshot, name: str) -> ModelRecord:
    """Find the model called ``name`` (id or alias); an empty name means the only model there is.

    Where workers serve whatever they are asked for, a name that nobody else has means theirs.

    Raises:
        GatewayError: ``model_not_found`` (404), ``missing_model`` (400), or ``no_available_workers`` (503) while a new
            engine has not told yet what it serves: the model may be among it.
    """
    if name:
        record = snapshot.model(name) or snapshot.model(WILDCARD)
        if record is None:
            raise _unknown(snapshot, name)
        return record
    if len(snapshot.models) == 1:
        return snapshot.models[0]
    if not snapshot.models:
        raise GatewayError("no_available_workers", "no model is available yet")
    raise GatewayError("missing_model", f"you must name a model{_known(snapshot)}", param="model")


def known(snapshot: FleetSnapshot, name: str) -> ModelRecord | None:
    """As ``resolve``, but None where that raises."""
    try:
        return resolve(snapshot, name)
    except GatewayError:
        return None


def _unknown(snapshot: FleetSnapshot, name: str) -> GatewayError:
    silent = [worker for worker in snapshot.workers if not worker.models and worker.status != "draining"]
    told = f"engines that have not told yet what they serve: {len(silent)}" if silent else ""
    if any(_may_answer(worker) for worker in silent):
        return GatewayError("no_available_workers", f"no engine that serves '{name}' is ready yet; {told}")
    known = f"{_known(snapshot)}; {told}" if told else _known(snapshot)
    asked = f"asked for the model {name[:_LONGEST_NAME]!r}"
    return GatewayError("model_not_found", f"the model '{name}' does not exist{known}", param="model", detail=asked)


def _may_answer(worker: WorkerRecord) -> bool:
    added = ids.minted(worker.id)
    return worker.status == "pending" and (added is None or clock.wall() < added + _FIRST_ANSWER)


def _known(snapshot: FleetSnapshot) -> str:
    names = [record.id for record in snapshot.models]
    if not names:
        return "; no model is available"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; available: {', '.join(names[:_NAMED])}{more}"
