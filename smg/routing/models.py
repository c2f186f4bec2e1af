"""Which model a request means (field case RO-01)."""

from smg.core.errors import GatewayError
from smg.fleet.records import WILDCARD, FleetSnapshot, ModelRecord

_NAMED = 8


def resolve(snapshot: FleetSnapshot, name: str) -> ModelRecord:
    """Find the model called ``name`` (id or alias); an empty name means the only model there is.

    Where workers serve whatever they are asked for, a name that nobody else has means theirs.

    Raises:
        GatewayError: ``model_not_found`` (404), ``missing_model`` (400), or ``no_available_workers`` (503) while an
            engine has not told yet what it serves: the model may be among it.
    """
    if name:
        record = snapshot.model(name) or snapshot.model(WILDCARD)
        if record is None:
            if any(worker.status == "pending" and not worker.models for worker in snapshot.workers):
                raise GatewayError("no_available_workers", f"no engine that serves '{name}' is ready yet")
            raise GatewayError("model_not_found", f"the model '{name}' does not exist{_known(snapshot)}", param="model")
        return record
    if len(snapshot.models) == 1:
        return snapshot.models[0]
    if not snapshot.models:
        raise GatewayError("no_available_workers", "no model is available yet")
    raise GatewayError("missing_model", f"you must name a model{_known(snapshot)}", param="model")


def _known(snapshot: FleetSnapshot) -> str:
    names = [record.id for record in snapshot.models]
    if not names:
        return "; no model is available"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; available: {', '.join(names[:_NAMED])}{more}"
