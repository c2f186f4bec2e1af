"""Admin routes that change the fleet: create, get, replace, patch and delete workers (spec api-and-ops 1.11).

The control process does it all; a change is accepted (202) once it has taken it over. A worker is named by its id or
its URL, percent-encoded.
"""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.control import ask
from smg.api.errors import JSON
from smg.core import wire
from smg.core.errors import GatewayError
from smg.fleet.records import Role
from smg.fleet.resilience import ResilienceSpec
from smg.fleet.roles import BOOTSTRAP_PORT, ROLE
from smg.fleet.sources import Attempts, HealthSpec, Interval, MinBytes, ModelCard, TensorPath, tensor_labels

Runtime: TypeAlias = Literal["unspecified", "vllm", "sglang", "trtllm", "tokenspeed", "mlx"]
Cost: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Priority: TypeAlias = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
# Nobody has so much to say about a worker, and all request workers would have to read it.
_MOST_BYTES = 1 << 16

T = TypeVar("T")


class WorkerBody(msgspec.Struct, forbid_unknown_fields=True):
    """A worker as it is to be. Without ``runtime_type`` its contract is probed, without ``models`` it tells its own.

    A model is its id, or an object with its id and aliases.
    """

    url: str
    models: list[str | ModelCard] | None = None
    runtime_type: Runtime | None = None
    runtime: Runtime | None = None
    worker_type: Role | None = None
    bootstrap_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    labels: dict[str, str] | None = None
    priority: Priority | None = None
    cost: Cost | None = None
    health: HealthSpec | None = None
    resilience: ResilienceSpec | None = None
    max_connection_attempts: Attempts | None = None
    load_monitor_interval_secs: Interval | None = None
    multimodal_tensor_transport: TensorPath | None = None
    multimodal_shm_min_bytes: MinBytes | None = None
    api_key: str | None = None

    def spec(self) -> dict[str, Any]:
        """The same as control takes it."""
        runtime = self.runtime_type or self.runtime or "unspecified"
        fields = {
            "url": self.url,
            "runtime": "" if runtime == "unspecified" else runtime,
            "models": [{"id": model} if isinstance(model, str) else model for model in self.models or ()],
            "labels": self._labels(),
            "priority": self.priority,
            "cost": self.cost,
            "health": self.health,
            "resilience": self.resilience,
            "max_connection_attempts": self.max_connection_attempts,
            "load_monitor_interval_secs": self.load_monitor_interval_secs,
            "api_key": self.api_key,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _labels(self) -> dict[str, str] | None:
        """The labels, and what other fields say that is looked for among them; None when there are none."""
        labels = {
            **(self.labels or {}),
            **tensor_labels(self.multimodal_tensor_transport, self.multimodal_shm_min_bytes),
        }
        if self.worker_type is not None:
            labels[ROLE] = self.worker_type
        if self.bootstrap_port is not None:
            labels[BOOTSTRAP_PORT] = str(self.bootstrap_port)
        return labels or self.labels


class WorkerChanges(msgspec.Struct, forbid_unknown_fields=True):
    """Fields to change; those left out stay. A label that is null is taken away, labels left out stay."""

    priority: Priority | None = None
    cost: Cost | None = None
    labels: dict[str, str | None] | None = None
    health: HealthSpec | None = None
    resilience: ResilienceSpec | None = None
    max_connection_attempts: Attempts | None = None
    load_monitor_interval_secs: Interval | None = None
    api_key: str | None = None


class Accepted(msgspec.Struct):
    """What was accepted; ``location`` is where to ask how far it is."""

    status: str
    worker_id: str
    url: str
    location: str
    message: str


async def create(request: Request) -> HTTPResponse:
    """``POST /workers``: want one more worker."""
    body = _body(request, WorkerBody)
    return _accepted(await ask(request.app.ctx.services, "create", spec=body.spec()), "the worker is being added")


async def get(request: Request, worker: str) -> HTTPResponse:
    """``GET /workers/{worker}``: one worker, with what is being done about it."""
    found = await ask(request.app.ctx.services, "get", id=worker)
    return HTTPResponse(msgspec.json.encode(found), content_type=JSON)


async def replace(request: Request, worker: str) -> HTTPResponse:
    """``PUT /workers/{worker}``: everything about a worker but its URL and its id."""
    body = _body(request, WorkerBody)
    found = await ask(request.app.ctx.services, "replace", id=worker, spec=body.spec())
    return _accepted(found, "the worker is changed")


async def patch(request: Request, worker: str) -> HTTPResponse:
    """``PATCH /workers/{worker}``: some of it."""
    changes = msgspec.to_builtins(_body(request, WorkerChanges))
    given = {name: value for name, value in changes.items() if value is not None}
    found = await ask(request.app.ctx.services, "patch", id=worker, patch=given)
    return _accepted(found, "the worker is changed")


async def delete(request: Request, worker: str) -> HTTPResponse:
    """``DELETE /workers/{worker}``: route nothing more to it and let it go when it is idle."""
    found = await ask(request.app.ctx.services, "delete", id=worker)
    return _accepted(found, "the worker leaves when what runs on it has ended")


def _body(request: Request, kind: type[T]) -> T:
    if len(request.body) > _MOST_BYTES:
        raise GatewayError("request_too_large", f"a worker's description has at most {_MOST_BYTES} bytes")
    return wire.decode(request.body, kind)


def _accepted(worker: dict[str, Any], message: str) -> HTTPResponse:
    location = f"/workers/{worker['id']}"
    body = Accepted("accepted", worker["id"], worker["url"], location, message)
    return HTTPResponse(msgspec.json.encode(body), status=202, headers={"location": location}, content_type=JSON)
