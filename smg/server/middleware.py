"""The layers around every handler, in order, as data (spec api-and-ops 1.1).

``DISPATCH`` surrounds the routing, so unknown paths and wrong methods go through it too; ``ENDPOINT`` lies between the
route and its handler. A body is read only after its sender has been let in. ``dispatch.py`` runs them: a layer is
plain functions and no coroutine of its own, for each of those would cost every request as much as what it does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from sanic import Request
from sanic.response import HTTPResponse

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.server.accounting import count, outcome, peer, record
from smg.server.active import ActiveRequests
from smg.server.cors import preflight
from smg.server.crowd import no_room
from smg.server.identity import context_of
from smg.server.protocol import GatewayRequest, resume_reading
from smg.telemetry.logs import current_request
from smg.telemetry.metrics import Metrics

# On a request's way in: what has to be waited for, or None. On its way out, however it has ended.
Enter: TypeAlias = Callable[[Request], Awaitable[None] | None]
Leave: TypeAlias = Callable[[Request], None]


class Layer(NamedTuple):
    """``leave`` is called for each request that ``enter`` was called for, in the order from the inside out.

    ``enter`` raises GatewayError to refuse the request, and may answer it by itself (``request.responded``).
    """

    name: str
    enter: Enter
    leave: Leave | None = None


def _identify(request: Request) -> None:
    """Give the request its context, and keep it among the active ones until it is over."""
    app = request.app.ctx
    assert isinstance(request, GatewayRequest)
    ctx = context_of(request.fields, app.api.naming(request.path), app.settings.server)
    request.ctx.smg = ctx
    current_request.set(ctx.request_id)
    active: ActiveRequests = app.active
    active.add(request)


def _identified(request: Request) -> None:
    active: ActiveRequests = request.app.ctx.active
    active.discard(request)
    # A connection has its own context, in which nothing else runs between two requests.
    current_request.set("")


def _account(request: Request) -> None:
    """Count the request, also while it runs."""
    metrics: Metrics = request.app.ctx.services.metrics
    metrics.http_requests_active.add()


def _accounted(request: Request) -> None:
    metrics: Metrics = request.app.ctx.services.metrics
    metrics.http_requests_active.add(v=-1)
    count(metrics, request, request.ctx.smg, outcome(request))


def _pass(request: Request) -> None:
    """Nothing is done on the way in."""


def _log_access(request: Request) -> None:
    """Write one record when it is over."""
    record(request, request.ctx.smg, outcome(request))


def _answer_preflight(request: Request) -> Awaitable[None] | None:
    """Answer what a browser asks before a page's request."""
    answer = preflight(request) if request.method == "OPTIONS" else None
    return None if answer is None else _send(request, answer)


async def _send(request: Request, answer: HTTPResponse) -> None:
    await (await request.respond(answer)).eof()


def _turn_away(request: Request) -> None:
    """Refuse inference on a connection for which there is no room."""
    assert request.route is not None
    if request.route.ctx.access == "data":
        request.app.ctx.crowd.count_refused()
        raise no_room()


def _limit_body(request: Request) -> None:
    """Refuse a body that says it is too long before a byte of it is read; a chunked one is counted while it comes."""
    limit: int = request.app.ctx.settings.server.max_payload_size
    declared = request.ctx.smg.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise GatewayError("request_too_large", f"The body has {declared} bytes; {limit} are allowed.")
    if request.stream is not None:
        request.stream.request_max_size = limit


def _authenticate(request: Request) -> None:
    """Let in who may use the route, and note who it is."""
    ctx: RequestContext = request.ctx.smg
    assert request.route is not None
    ctx.principal = request.app.ctx.gate.check(request.route.ctx.access, ctx.headers, peer(request))


def _read_body(request: Request) -> Awaitable[None] | None:
    """Have the whole body before the handler starts. One that is compressed is refused (415)."""
    if request.stream is not None and request.stream.request_body:
        coding = request.ctx.smg.headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            told = f"The content-encoding {coding[:64]!r} is not understood; send the body plain."
            raise GatewayError("unsupported_media_type", told)
        assert isinstance(request, GatewayRequest)
        if not request.take_body():
            return _wait_for_body(request)
    resume_reading(request)
    return None


async def _wait_for_body(request: GatewayRequest) -> None:
    ctx: RequestContext = request.ctx.smg
    try:
        async with asyncio.timeout(ctx.remaining()):
            await request.receive_body()
    except TimeoutError:
        raise GatewayError("request_timeout", "The body did not arrive in time.") from None
    resume_reading(request)


DISPATCH: tuple[Layer, ...] = (
    Layer("identify", _identify, _identified),
    Layer("account", _account, _accounted),
    Layer("log_access", _pass, _log_access),
    Layer("answer_preflight", _answer_preflight),
)
ENDPOINT: tuple[Layer, ...] = (
    Layer("limit_body", _limit_body),
    Layer("authenticate", _authenticate),
    Layer("read_body", _read_body),
)
# In the place of ENDPOINT on a connection that is one too many.
GUEST: tuple[Layer, ...] = (Layer("turn_away", _turn_away), *ENDPOINT)
