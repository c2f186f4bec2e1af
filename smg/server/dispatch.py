"""The way of a request through layers and route to its answer, in one coroutine.

It does what Sanic's ``handle_request`` does for an application without middleware, signals and websockets of its own.
Each coroutine in between would be made for every request, and gone through each time that the request goes on after a
wait.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from sanic import Request
from sanic.exceptions import ServerError
from sanic.http import Http, Stage
from sanic.response import BaseHTTPResponse, HTTPResponse

from smg.server.middleware import DISPATCH, ENDPOINT, GUEST, Layer
from smg.server.protocol import GatewayRequest, abort

log = logging.getLogger("smg.server")

# ``handler(request, **parameters)``, the path's parameters unquoted: an answer, or None when it has sent one itself.
Handler: TypeAlias = Callable[..., Awaitable[HTTPResponse | None]]


async def dispatch(request: Request, endpoint: Sequence[Layer] = ENDPOINT) -> None:
    """Handle a request whose head has been read, to the last byte of its answer."""
    entered = 0
    try:
        for layer in DISPATCH:
            waiting = layer.enter(request)
            entered += 1
            if waiting is not None:
                await waiting
        if not request.responded:
            await _answer(request, endpoint)
    finally:
        _leave(DISPATCH[:entered], request)


async def dispatch_guest(request: Request) -> None:
    """As ``dispatch``, on a connection that is one too many: it is closed then, and operators only are answered."""
    cast("Http", request.stream).keep_alive = False
    await dispatch(request, GUEST)


async def _answer(request: Request, endpoint: Sequence[Layer]) -> None:
    """Route and answer; what is raised becomes an answer too, as long as none has begun."""
    handled = False
    try:
        host = request.ctx.smg.headers.get("host")
        route, _, parameters = request.app.router.get(request.path, request.method, host)
        request.route = route
        for layer in endpoint:
            waiting = layer.enter(request)
            if waiting is not None:
                await waiting
        answer = await route.ctx.handler(request, **_unquoted(parameters))
        handled = True
        await _sent(request, answer)
    except Exception as error:
        stream = request.stream
        if not handled and stream is not None and stream.stage is not Stage.HANDLER:
            # A cut-off answer must not look complete: no last chunk, the connection just ends.
            log.exception("a handler failed after its answer had begun")
            abort(request)
            return
        # Looked up each time: Sanic replaces the method by a faster one when it starts.
        await request.app.handle_exception(request, error, run_middleware=False)


async def _sent(request: Request, answer: HTTPResponse | None) -> None:
    """Send ``answer``, or the end of what the handler has sent itself."""
    if answer is not None and not request.responded:
        assert isinstance(request, GatewayRequest)
        await request.answer(answer)
        return
    response: Any = None if request.stream is None else request.stream.response
    if not isinstance(response, BaseHTTPResponse):
        raise ServerError("the handler has not answered")
    await response.send(end_stream=True)


def _unquoted(parameters: dict[str, str]) -> dict[str, str]:
    # Unquoted after the routing, so that a name may have a slash in it.
    return {name: unquote(value) for name, value in parameters.items()} if parameters else parameters


def _leave(layers: Sequence[Layer], request: Request) -> None:
    """Leave ``layers``, the innermost first, and the others also when that fails."""
    for number in range(len(layers) - 1, -1, -1):
        leave = layers[number].leave
        if leave is None:
            continue
        try:
            leave(request)
        except BaseException:
            _leave(layers[:number], request)
            raise
