"""Every exception of the application becomes an error answer in the shape of a dialect; never a traceback."""

import logging
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from sanic import Request
from sanic.exceptions import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RequestCancelled,
    RequestTimeout,
    SanicException,
)
from sanic.handlers import ErrorHandler
from sanic.http import Http
from sanic.response import HTTPResponse

from smg.core.errors import GatewayError
from smg.server.accounting import account_unrouted
from smg.server.identity import context_of
from smg.server.protocol import UNREAD_LIMIT

log = logging.getLogger("smg.server")

ErrorResponse: TypeAlias = Callable[[Request, GatewayError], HTTPResponse]


def gateway_error(exception: Exception | BaseException, method: str, path: str) -> GatewayError:
    """Translate whatever was raised. Unknown exceptions become ``internal_error`` and tell the client nothing."""
    match exception:
        case GatewayError():
            return exception
        case NotFound():
            return GatewayError("not_found", f"There is no route {method} {path}.")
        case MethodNotAllowed():
            return GatewayError("method_not_allowed", f"{path} does not take {method}.")
        case PayloadTooLarge():
            return GatewayError("request_too_large", str(exception))
        case RequestTimeout():
            return GatewayError("request_timeout", "The request did not arrive in time.")
        case RequestCancelled():
            return GatewayError("client_disconnected", "The client has left.")
        case BadRequest():
            return GatewayError("invalid_request", str(exception) or "This is not a valid HTTP request.")
        case SanicException() if 400 <= exception.status_code < 500:
            return GatewayError("invalid_request", str(exception), status=exception.status_code)
    return GatewayError("internal_error", "The gateway failed to handle the request.")


def _bound_rest(request: Request, error: GatewayError) -> None:
    """Limit how much of a body nobody wants any more is still taken from the client."""
    if request.stream is None:
        return
    stream = cast("Http", request.stream)
    stream.request_max_size = most = min(UNREAD_LIMIT, stream.protocol.request_max_size)
    coming: Any = stream.request_body
    if coming == "chunked" or (coming and (stream.request_bytes or 0) > most):
        # It may be too long to be read to its end: the client has to know that the connection ends.
        stream.keep_alive = False
    if error.status == 408:
        # It won't come: answer and hang up, without waiting for it again.
        stream.request_body = None
        stream.keep_alive = False


class DialectErrors(ErrorHandler):
    """Sanic's hook for exceptions; ``error_response(request, error)`` makes the answer and notes the error's code."""

    def __init__(self, error_response: ErrorResponse) -> None:
        super().__init__()
        self._error_response = error_response

    def response(self, request: Request, exception: Exception) -> HTTPResponse:
        """Answer ``exception``; also for what failed before there was a request (a malformed head)."""
        error = gateway_error(exception, request.method, request.path)
        if error.code == "internal_error":
            log.error("request failed", exc_info=exception)
        elif error.detail:
            log.info("request failed: %s", error.detail, extra={"code": error.code})
        routed = hasattr(request.ctx, "smg")
        if not routed:
            app = request.app.ctx
            request.ctx.smg = context_of({}, app.api.naming(request.path), app.settings.server)
        _bound_rest(request, error)
        response = self._error_response(request, error)
        if isinstance(exception, MethodNotAllowed):
            response.headers.update(exception.headers)
        if not routed and not isinstance(exception, RequestCancelled):
            account_unrouted(request, response)
        return response
