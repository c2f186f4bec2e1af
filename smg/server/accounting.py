"""What is counted and logged of each request, once, when its last byte is written or its client has left."""

from sanic import Request
from sanic.http import Stage
from sanic.response import HTTPResponse

from smg.core import clock
from smg.core.context import RequestContext
from smg.telemetry.logs import access_record
from smg.telemetry.metrics import Metrics

CLIENT_LEFT = 499
LEFT_CODE = "client_disconnected"
UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


def method_label(request: Request) -> str:
    """The method, with the invented ones under one label."""
    return request.method if request.method in _METHODS else "other"


def path_label(request: Request) -> str:
    """The route's template, never the path a client made up."""
    return UNMATCHED if request.route is None else request.route.ctx.template


def outcome(request: Request) -> int:
    """The status that the request ended with; CLIENT_LEFT when its answer could not be delivered in full."""
    stream = request.stream
    response = None if stream is None else stream.response
    delivered = stream is not None and stream.stage is Stage.IDLE
    if not delivered and (request.conn_info is None or request.conn_info.lost):
        return CLIENT_LEFT
    return 500 if response is None else int(response.status)


def error_code(request: Request, ctx: RequestContext, status: int) -> str:
    """The machine code of a failed request, empty for a good one. A stream that fails has begun with status 200."""
    if status == CLIENT_LEFT:
        return LEFT_CODE
    response = None if request.stream is None else request.stream.response
    told = "" if response is None else response.headers.get("x-smg-error-code", "")
    noted = ctx.notes.get("error", "")
    return told or ("" if noted == LEFT_CODE else noted)


def count(metrics: Metrics, request: Request, ctx: RequestContext, status: int) -> None:
    """Add a finished request to the counters and the latency histogram."""
    path, method = path_label(request), method_label(request)
    metrics.http_requests_total.inc(method, path)
    metrics.http_responses_total.inc(path, str(status), error_code(request, ctx, status))
    metrics.http_request_duration_seconds.observe(clock.monotonic() - ctx.started, method, path)


def record(request: Request, ctx: RequestContext, status: int) -> None:
    """Write the access log's record of a finished request."""
    if status == CLIENT_LEFT:
        ctx.notes.setdefault("error", LEFT_CODE)
    elif ctx.notes.get("error") == LEFT_CODE:
        # It has its whole answer: it left while the engine was still being told to stop.
        del ctx.notes["error"]
    access_record(ctx, request.method, request.path, status, clock.monotonic() - ctx.started, peer(request))


def account_unrouted(request: Request, response: HTTPResponse) -> None:
    """Count and log a request so malformed that it never reached the application."""
    ctx: RequestContext = request.ctx.smg
    metrics: Metrics = request.app.ctx.services.metrics
    metrics.http_requests_total.inc(method_label(request), UNMATCHED)
    metrics.http_responses_total.inc(UNMATCHED, str(response.status), response.headers.get("x-smg-error-code", ""))
    record(request, ctx, response.status)


def peer(request: Request) -> str:
    """The connection's own peer address, whatever headers say; empty when there is none."""
    return request.ip if request.conn_info is not None else ""
