"""Every route of the gateway, for the server to register, and what it must know of a path before it is routed."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api import admin, health, models
from smg.api.dialect import Dialect, Endpoint, Handler
from smg.api.errors import error_response
from smg.api.handler import generation_handler, own_handler
from smg.api.table import DIALECTS
from smg.core.errors import GatewayError

Access: TypeAlias = Literal["public", "data", "admin"]


class Route(msgspec.Struct, frozen=True):
    """One route in Sanic's path syntax.

    ``access`` is who may call it: everybody, holders of an API key, or admins. ``dialect`` is whose headers and error
    shape apply, None for OpenAI's.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    dialect: Dialect | None = None


OPERATIONS = (
    Route("GET", "/v1/models", models.list_models, "data"),
    Route("GET", "/v1/models/<model:path>", models.get_model, "data"),
    Route("GET", "/health", health.alive, "public"),
    Route("GET", "/liveness", health.alive, "public"),
    Route("GET", "/readiness", health.readiness, "public"),
    Route("GET", "/metrics", health.metrics, "public"),
    Route("GET", "/workers", admin.workers, "admin"),
    Route("GET", "/get_loads", admin.loads, "admin"),
)


class Api:
    """The routes of ``dialects`` and of operations, with what the server asks about them.

    Handlers read ``request.ctx.smg`` (RequestContext) and ``request.app.ctx.services`` (Services).
    """

    def __init__(self, dialects: Sequence[Dialect] = DIALECTS) -> None:
        generations = [_route(dialect, endpoint) for dialect in dialects for endpoint in dialect.routes]
        self.routes: list[Route] = [*generations, *OPERATIONS]
        prefixes = {_prefix(endpoint.path): dialect for dialect in dialects for endpoint in dialect.routes}
        # The longest first: the first that fits is the owner.
        self._prefixes = sorted(prefixes.items(), key=lambda item: len(item[0]), reverse=True)

    def owner(self, path: str) -> Dialect | None:
        """The dialect that ``path`` belongs to by its beginning, also where no route matches; None: no dialect's."""
        for prefix, dialect in self._prefixes:
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                return dialect
        return None

    def naming(self, path: str) -> tuple[str, str]:
        """The prefix of request ids and the metrics' label ``endpoint`` of a request for ``path``."""
        dialect = self.owner(path)
        return ("req-", "other") if dialect is None else (dialect.id_prefix, dialect.label)

    def error_response(self, request: Request, error: GatewayError) -> HTTPResponse:
        """The answer to a request that failed anywhere: before its route was known, in a layer, or in a handler."""
        dialect = self.owner(request.path) if request.route is None else request.route.ctx.dialect
        return error_response(dialect, request.ctx.smg, error)


def _route(dialect: Dialect, endpoint: Endpoint) -> Route:
    handler = generation_handler(dialect) if endpoint.handler is None else own_handler(dialect, endpoint.handler)
    return Route(endpoint.method, endpoint.path, handler, "data", dialect)


def _prefix(path: str) -> str:
    """What all paths of a template begin with, in whole segments."""
    fixed, parameter, _ = path.partition("<")
    return fixed.rpartition("/")[0] if parameter else fixed
