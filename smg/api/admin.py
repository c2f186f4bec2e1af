"""Admin routes on the fleet, answered by the control process (spec api-and-ops 1.10, 1.11)."""

from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.errors import JSON
from smg.core.errors import GatewayError
from smg.pipeline.services import Services


async def workers(request: Request) -> HTTPResponse:
    """``GET /workers``: every worker and its state; ``?model=`` keeps those that serve it."""
    found = (await _ask(request, "list"))["workers"]
    model = request.args.get("model")
    if model:
        found = [worker for worker in found if model in worker["models"]]
    return HTTPResponse(msgspec.json.encode({"workers": found, "total": len(found)}), content_type=JSON)


async def loads(request: Request) -> HTTPResponse:
    """``GET /get_loads``: the engines' last load reports."""
    found = await _ask(request, "loads")
    body = {"workers": [{"worker": worker, **load} for worker, load in found.items()]}
    return HTTPResponse(msgspec.json.encode(body), content_type=JSON)


async def _ask(request: Request, op: str) -> Any:
    services: Services = request.app.ctx.services
    if services.control is None:
        raise GatewayError("overloaded", "the control process is not reachable")
    return await services.control.call(op)
