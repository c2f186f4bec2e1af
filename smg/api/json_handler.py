"""Handlers of plain routes: a value in, JSON out."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.errors import JSON

# ``answer(request, services, **parameters)`` of the path; raises GatewayError.
Answer: TypeAlias = Callable[..., Awaitable[Any]]


def json_handler(answer: Answer, status: int = 200) -> Callable[..., Awaitable[HTTPResponse]]:
    """Make a Sanic handler of ``answer``, whose result is encoded as JSON and sent with ``status``."""

    @functools.wraps(answer)
    async def handle(request: Request, **params: str) -> HTTPResponse:
        body = await answer(request, request.app.ctx.services, **params)
        return HTTPResponse(msgspec.json.encode(body), status=status, content_type=JSON)

    return handle
