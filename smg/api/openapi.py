"""``GET /openapi.json``: an OpenAPI 3.1 document of the routes, made from the types that decode and encode them.

Fields whose content depends on other fields (messages, tools, response formats) are described loosely here; what is
wrong in them is told by the 400 that names the place.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg._version import __version__
from smg.api.dialect import Handler
from smg.api.errors import JSON
from smg.api.route import Access, Route

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"<(\w+)(?::\w+)?>")
# Headers that any generation takes (spec api-and-ops 2.1).
_HEADERS = {
    "x-request-id": "the client's own id of the request, 1 to 128 visible ASCII characters",
    "x-smg-routing-key": "requests with the same key go to the same worker, under policies that honour it",
    "x-smg-target-worker": "the worker that shall serve the request",
    "x-smg-priority": "system, interactive, default or bulk",
}


class ErrorFields(msgspec.Struct):
    """``code`` is for machines, ``param`` the field that is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct):
    error: ErrorFields


def handler(routes: Sequence[Route]) -> Handler:
    """Return the handler that answers with the document of ``routes``, which is made at the first request."""

    @cache
    def body() -> bytes:
        return msgspec.json.encode(document(routes))

    async def openapi(request: Request) -> HTTPResponse:
        return HTTPResponse(body(), content_type=JSON)

    return openapi


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document of ``routes`` as plain objects."""
    named = (kind for route in routes for kind in (route.body, route.reply, route.failure) if kind is not None)
    # Routes may share their types.
    types = list(dict.fromkeys(named))
    kinds = [*types, ErrorBody]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    known = dict(zip(kinds, schemas, strict=True))
    for kind in types:
        # Absent and null are the same on the wire, so the types themselves cannot say what a body cannot do without.
        if needs := getattr(kind, "needs", ()):
            components[kind.__name__]["required"] = [*components[kind.__name__]["required"], *needs]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, known)
        paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "smg-server", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary,
        "tags": [route.access],
        "security": _security(route.access),
        "responses": _responses(route, known),
    }
    parameters = [_parameter(name, "path", required=True) for name in _PARAMETER.findall(route.path)]
    parameters += [_parameter(name, "query") for name in route.query]
    if route.streams:
        parameters += [_parameter(name, "header", text) for name, text in _HEADERS.items()]
    if parameters:
        out["parameters"] = parameters
    if route.body is not None:
        out["requestBody"] = {"required": True, "content": {JSON: {"schema": known[route.body]}}}
    return out


def _security(access: Access) -> list[dict[str, list[str]]]:
    """Without configured keys no key is needed, so none is an alternative."""
    return [] if access == "public" else [{"bearer": []}, {"key": []}, {}]


def _responses(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "success"}
    if route.reply is not None:
        success["content"] = {JSON: {"schema": known[route.reply]}}
    elif route.streams:
        success["content"] = {JSON: {"schema": {"type": "object"}}}
    if route.streams:
        success["content"]["text/event-stream"] = {}
    code = str(route.status)
    if route.access == "public":
        return {code: success, "503": {"description": "not ready"}}
    failure = {JSON: {"schema": known[route.failure or ErrorBody]}}
    return {
        str(route.status): success,
        "4XX": {"description": "the request cannot be served as it is", "content": failure},
        "5XX": {"description": "the gateway or an engine failed, or has no room", "content": failure},
    }


def _parameter(name: str, place: str, text: str = "", *, required: bool = False) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "in": place, "required": required, "schema": {"type": "string"}}
    return out | {"description": text} if text else out
