"""Handlers of plain routes: a value in, JSON or an error in OpenAI's shape out."""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.errors import JSON, error_response
from smg.core.errors import GatewayError
from smg.pipeline.services import Services

Answer: TypeAlias = Callable[[Request, Services], Awaitable[Any]]

log = logging.getLogger("smg.api")


def endpoint(answer: Answer) -> Callable[[Request], Awaitable[HTTPResponse]]:
    """Make a Sanic handler of ``answer``, whose result is encoded as JSON and whose errors become error answers."""

    @functools.wraps(answer)
    async def handle(request: Request) -> HTTPResponse:
        try:
            body = await answer(request, request.app.ctx.services)
        except GatewayError as error:
            return error_response(request.path, request.ctx.smg, error)
        except Exception:
            log.exception("request failed", extra={"request": request.ctx.smg.request_id})
            return error_response(request.path, request.ctx.smg, GatewayError("internal_error", "internal error"))
        return HTTPResponse(msgspec.json.encode(body), content_type=JSON)

    return handle
