"""Admin routes that look at the fleet, answered by the control process (spec api-and-ops 1.10, 1.11)."""

from typing import Any

from sanic import Request

from smg.api.control import ask
from smg.pipeline.services import Services


async def workers(request: Request, services: Services) -> dict[str, Any]:
    """``GET /workers``: every worker and its state; ``?model=`` keeps those that serve it."""
    found = (await ask(services, "list"))["workers"]
    model = request.args.get("model")
    if model:
        found = [worker for worker in found if model in worker["models"]]
    kinds = [worker["worker_type"] for worker in found]
    stats = {f"{kind}_count": kinds.count(kind) for kind in ("regular", "prefill", "decode", "encode")}
    return {"workers": found, "total": len(found), "stats": stats}


async def loads(request: Request, services: Services) -> dict[str, Any]:
    """``GET /get_loads`` and ``GET /loads``: the engines' last load reports, at most some seconds old."""
    return {"workers": await ask(services, "loads")}
