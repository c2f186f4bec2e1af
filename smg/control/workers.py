"""Operations of the admin API on workers: create, get, replace, patch, delete (spec api-and-ops 1.11).

What they change holds until the gateway ends, also when control is restarted; flags and files say what there is at the
next start (field case CF-01).
"""

from typing import Any, TypeVar

import msgspec

from smg.config.settings import RoutingSettings
from smg.control.admin import Handler
from smg.control.fleet import FleetControl
from smg.core.errors import GatewayError, bad_request
from smg.fleet.records import WorkerRecord
from smg.fleet.resilience import ResilienceSpec
from smg.fleet.sources import Attempts, HealthSpec, Interval, WorkerSpec, check
from smg.routing.policies import parameters

T = TypeVar("T")

_AS_GIVEN = ("priority", "api_key", "max_connection_attempts", "load_monitor_interval_secs")
_PARTLY = ("health", "resilience")


class WorkerPatch(msgspec.Struct, forbid_unknown_fields=True):
    """Fields to change; None leaves a field as it is. A label that is null is taken away, others are kept.

    Of ``health`` and ``resilience``, too, only what is given changes.
    """

    priority: int | None = None
    cost: float | None = None
    labels: dict[str, str | None] | None = None
    health: HealthSpec | None = None
    resilience: ResilienceSpec | None = None
    max_connection_attempts: Attempts | None = None
    load_monitor_interval_secs: Interval | None = None
    api_key: str | None = None


def worker_operations(fleet: FleetControl) -> dict[str, Handler]:
    """The operations, each on the worker ``id`` where there is one; all answer with the worker as it is then."""

    async def create(request: dict[str, Any]) -> dict[str, Any]:
        spec = _spec(request.get("spec"))
        return fleet.describe(fleet.create(spec))

    async def get(request: dict[str, Any]) -> dict[str, Any]:
        return fleet.describe(_worker(fleet, request))

    async def replace(request: dict[str, Any]) -> dict[str, Any]:
        worker, spec = _worker(fleet, request), _spec(request.get("spec"))
        if spec.url != worker.url:
            raise bad_request("the URL of a worker stays; delete this one and create another", "url")
        return fleet.describe(fleet.change(worker, msgspec.to_builtins(spec)))

    async def patch(request: dict[str, Any]) -> dict[str, Any]:
        worker = _worker(fleet, request)
        asked = _convert(request.get("patch"), WorkerPatch)
        fields: dict[str, Any] = {}
        for name in _AS_GIVEN:
            if (value := getattr(asked, name)) is not None:
                fields[name] = value
        if asked.cost is not None:
            fields["cost"] = _cost(asked.cost)
        for name in _PARTLY:
            if (part := getattr(asked, name)) is not None:
                changes = {key: value for key, value in msgspec.to_builtins(part).items() if value is not None}
                fields[name] = msgspec.to_builtins(getattr(worker.wanted, name)) | changes
        if asked.labels is not None:
            labels = {**worker.wanted.labels, **asked.labels}
            fields["labels"] = _labels({name: value for name, value in labels.items() if value is not None})
        return fleet.describe(fleet.change(worker, fields))

    async def delete(request: dict[str, Any]) -> dict[str, Any]:
        worker = _worker(fleet, request)
        fleet.dismiss(worker)
        return fleet.describe(worker)

    return {
        "create": create,
        "get": get,
        "replace": replace,
        "patch": patch,
        "delete": delete,
    }


def _worker(fleet: FleetControl, request: dict[str, Any]) -> WorkerRecord:
    """The worker that ``request`` names by its id or URL."""
    name = str(request.get("id", ""))
    worker = fleet.registry.worker(name) or fleet.registry.by_url(name)
    if worker is None:
        raise GatewayError("worker_not_found", f"there is no worker '{name}'")
    return worker


def _spec(raw: object) -> WorkerSpec:
    spec = _convert(raw, WorkerSpec)
    _cost(spec.cost)
    _labels(spec.labels)
    try:
        check(spec)
    except ValueError as error:
        raise bad_request(str(error), "url") from None
    return spec


def _cost(cost: float) -> float:
    if not 0 <= cost < float("inf"):
        raise bad_request("must be a number from 0 on", "cost")
    return cost


def _labels(labels: dict[str, str]) -> dict[str, str]:
    if labels.get("policy"):
        try:
            parameters.read(labels["policy"], RoutingSettings())
        except ValueError as error:
            raise bad_request(str(error), "labels.policy") from None
    return labels


def _convert(raw: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise bad_request(str(error)) from None
