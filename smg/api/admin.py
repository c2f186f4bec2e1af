"""Admin routes that look at the fleet, answered by the control process (spec api-and-ops 1.10, 1.11)."""

from typing import Any

from sanic import Request

from smg.core.errors import GatewayError
from smg.pipeline.services import Services


async def workers(request: Request, services: Services) -> dict[str, Any]:
    """``GET /workers``: every worker and its state; ``?model=`` keeps those that serve it."""
    found = (await ask(services, "list"))["workers"]
    model = request.args.get("model")
    if model:
        found = [worker for worker in found if model in worker["models"]]
    kinds = [worker["worker_type"] for worker in found]
    stats = {f"{kind}_count": kinds.count(kind) for kind in ("regular", "prefill", "decode")}
    return {"workers": found, "total": len(found), "stats": stats}


async def loads(request: Request, services: Services) -> dict[str, Any]:
    """``GET /get_loads`` and ``GET /loads``: the engines' last load reports, at most some seconds old."""
    return {"workers": await ask(services, "loads")}


async def ask(services: Services, op: str, **arguments: Any) -> Any:
    """Run ``op`` in the control process. Raises GatewayError: its own, or 503 when it does not answer."""
    if services.control is None:
        raise GatewayError("overloaded", "the control process is not reachable")
    return await services.control.call(op, **arguments)
