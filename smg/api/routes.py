"""Every route of the gateway, for the server to register."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

from smg.api import admin, health, models
from smg.api.errors import error_body
from smg.api.handler import generation_handler
from smg.api.table import DIALECTS

__all__ = ["Access", "Route", "error_body", "routes"]

Access: TypeAlias = Literal["public", "data", "admin"]


class Route(msgspec.Struct, frozen=True):
    """One route in Sanic's path syntax.

    ``access`` is who may call it: everybody, holders of an API key, or admins. ``dialect`` names the dialect whose
    error shape applies, empty for OpenAI's.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    access: Access
    dialect: str = ""


def routes() -> list[Route]:
    """All routes. Handlers read ``request.ctx.smg`` (RequestContext) and ``request.app.ctx.services`` (Services)."""
    generations = [Route("POST", d.path, generation_handler(d), "data", d.name) for d in DIALECTS]
    return [
        *generations,
        Route("GET", "/v1/models", models.list_models, "data"),
        Route("GET", "/v1/models/<model:path>", models.get_model, "data"),
        Route("GET", "/health", health.alive, "public"),
        Route("GET", "/liveness", health.alive, "public"),
        Route("GET", "/readiness", health.readiness, "public"),
        Route("GET", "/metrics", health.metrics, "public"),
        Route("GET", "/workers", admin.workers, "admin"),
        Route("GET", "/get_loads", admin.loads, "admin"),
    ]
