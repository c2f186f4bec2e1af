"""Every route of the gateway, for the server to register, and what it must know of a path before it is routed."""

from collections.abc import Sequence

from sanic import Request
from sanic.response import HTTPResponse

from smg.api import openapi
from smg.api.dialect import Dialect, Endpoint
from smg.api.errors import error_response
from smg.api.handler import generation_handler, own_handler
from smg.api.operations import OPERATIONS
from smg.api.route import Route
from smg.api.table import DIALECTS
from smg.core.errors import GatewayError


class Api:
    """The routes of ``dialects`` and of operations, with what the server asks about them.

    Handlers read ``request.ctx.smg`` (RequestContext) and ``request.app.ctx.services`` (Services).
    """

    def __init__(self, dialects: Sequence[Dialect] = DIALECTS) -> None:
        generations = [_route(dialect, endpoint) for dialect in dialects for endpoint in dialect.routes]
        table = [*generations, *OPERATIONS]
        document = Route("GET", "/openapi.json", openapi.handler(table), "public", summary="This document")
        self.routes: list[Route] = [*table, document]
        prefixes = {_prefix(endpoint.path): dialect for dialect in dialects for endpoint in dialect.routes}
        # The longest first: the first that fits is the owner.
        self._prefixes = sorted(prefixes.items(), key=lambda item: len(item[0]), reverse=True)
        # Of all paths that have no parameters: most requests are for one of these.
        self._names = {route.path: self._naming(route.path) for route in self.routes if "<" not in route.path}

    def owner(self, path: str) -> Dialect | None:
        """The dialect that ``path`` belongs to by its beginning, also where no route matches; None: no dialect's."""
        for prefix, dialect in self._prefixes:
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                return dialect
        return None

    def naming(self, path: str) -> tuple[str, str]:
        """The prefix of request ids and the metrics' label ``endpoint`` of a request for ``path``."""
        return self._names.get(path) or self._naming(path)

    def _naming(self, path: str) -> tuple[str, str]:
        dialect = self.owner(path)
        return ("req-", "other") if dialect is None else (dialect.id_prefix, dialect.label)

    def error_response(self, request: Request, error: GatewayError) -> HTTPResponse:
        """The answer to a request that failed anywhere: before its route was known, in a layer, or in a handler."""
        dialect = self.owner(request.path) if request.route is None else request.route.ctx.dialect
        return error_response(dialect, request.ctx.smg, error)


def _route(dialect: Dialect, endpoint: Endpoint) -> Route:
    generates = endpoint.handler is None
    handler = generation_handler(dialect) if endpoint.handler is None else own_handler(dialect, endpoint.handler)
    return Route(
        endpoint.method,
        endpoint.path,
        handler,
        "data",
        dialect,
        summary=endpoint.summary,
        body=endpoint.body,
        reply=endpoint.reply,
        failure=endpoint.failure,
        streams=generates,
    )


def _prefix(path: str) -> str:
    """What all paths of a template begin with, in whole segments."""
    fixed, parameter, _ = path.partition("<")
    return fixed.rpartition("/")[0] if parameter else fixed
