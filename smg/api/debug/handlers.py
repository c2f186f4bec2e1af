"""Both handlers. The files they read may be those of any request process."""

import asyncio

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.errors import JSON
from smg.core.errors import GatewayError
from smg.pipeline.debug import DebugSummary, DebugWindow
from smg.pipeline.services import Services


class DebugList(msgspec.Struct):
    """``requests`` are the newest first."""

    requests: list[DebugSummary]


async def debug_requests(request: Request, services: Services) -> DebugList:
    """``GET /debug/requests``: what there is. Raises GatewayError (404) when the window is off."""
    return DebugList(await asyncio.to_thread(_window(services).summaries))


async def debug_request(request: Request, id: str) -> HTTPResponse:
    """``GET /debug/requests/{id}``: one record. Raises GatewayError (404)."""
    body = await asyncio.to_thread(_window(request.app.ctx.services).record, id)
    if body is None:
        raise GatewayError("not_found", "there is no such request in the debug window")
    return HTTPResponse(body, content_type=JSON)


def _window(services: Services) -> DebugWindow:
    if services.debug is None:
        raise GatewayError("not_found", "the debug window is off (--debug-requests)")
    return services.debug
