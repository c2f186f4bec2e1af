"""The layers around every handler, in order, as data (spec api-and-ops 1.1).

``DISPATCH`` surrounds Sanic's routing, so unknown paths and wrong methods go through it too; ``ENDPOINT`` surrounds the
handler of a known route. A body is read only after its sender has been let in.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from sanic import Request
from sanic.response import HTTPResponse

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.server.accounting import count, method_label, outcome, path_label, peer, record
from smg.server.active import ActiveRequests
from smg.server.cors import preflight
from smg.server.identity import context_of
from smg.server.protocol import GatewayRequest, resume_reading
from smg.telemetry.logs import current_request
from smg.telemetry.metrics import Metrics

Next: TypeAlias = Callable[[Request], Awaitable[HTTPResponse | None]]
Layer: TypeAlias = Callable[[Next, Request], Awaitable[HTTPResponse | None]]


async def identify(nxt: Next, request: Request) -> HTTPResponse | None:
    """Give the request its context, and keep it among the active ones until it is over."""
    naming = request.app.ctx.api.naming(request.path)
    ctx = context_of(request.headers, naming, request.app.ctx.settings.server)
    request.ctx.smg = ctx
    token = current_request.set(ctx.request_id)
    active: ActiveRequests = request.app.ctx.active
    active.add(request)
    try:
        return await nxt(request)
    finally:
        active.discard(request)
        current_request.reset(token)


async def account(nxt: Next, request: Request) -> HTTPResponse | None:
    """Count the request, also while it runs."""
    metrics: Metrics = request.app.ctx.services.metrics
    metrics.http_requests_active.add()
    try:
        return await nxt(request)
    finally:
        metrics.http_requests_active.add(v=-1)
        metrics.http_requests_total.inc(method_label(request), path_label(request))
        count(metrics, request, request.ctx.smg, outcome(request))


async def log_access(nxt: Next, request: Request) -> HTTPResponse | None:
    """Write one record when it is over."""
    try:
        return await nxt(request)
    finally:
        record(request, request.ctx.smg, outcome(request))


async def limit_body(nxt: Next, request: Request) -> HTTPResponse | None:
    """Refuse a body that says it is too long before a byte of it is read; a chunked one is counted while it comes."""
    limit: int = request.app.ctx.settings.server.max_payload_size
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise GatewayError("request_too_large", f"The body has {declared} bytes; {limit} are allowed.")
    if request.stream is not None:
        request.stream.request_max_size = limit
    return await nxt(request)


async def authenticate(nxt: Next, request: Request) -> HTTPResponse | None:
    """Let in who may use the route, and note who it is."""
    ctx: RequestContext = request.ctx.smg
    assert request.route is not None
    ctx.principal = request.app.ctx.gate.check(request.route.ctx.access, request.headers, peer(request))
    return await nxt(request)


async def read_body(nxt: Next, request: Request) -> HTTPResponse | None:
    """Have the whole body before the handler starts. One that is compressed is refused (415)."""
    if request.stream is not None and request.stream.request_body:
        coding = request.headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            told = f"The content-encoding {coding[:64]!r} is not understood; send the body plain."
            raise GatewayError("unsupported_media_type", told)
        ctx: RequestContext = request.ctx.smg
        assert isinstance(request, GatewayRequest)
        try:
            if request.arrived:
                await request.receive_body()
            else:
                async with asyncio.timeout(ctx.remaining()):
                    await request.receive_body()
        except TimeoutError:
            raise GatewayError("request_timeout", "The body did not arrive in time.") from None
    resume_reading(request)
    return await nxt(request)


async def answer_preflight(nxt: Next, request: Request) -> HTTPResponse | None:
    """Answer what a browser asks before a page's request."""
    answer = preflight(request) if request.method == "OPTIONS" else None
    if answer is None:
        return await nxt(request)
    await (await request.respond(answer)).eof()
    return None


DISPATCH: tuple[Layer, ...] = (identify, account, log_access, answer_preflight)
ENDPOINT: tuple[Layer, ...] = (limit_body, authenticate, read_body)


def compose(layers: Sequence[Layer], innermost: Next) -> Next:
    """Put ``layers`` around ``innermost``, the first one outermost."""
    for layer in reversed(layers):
        innermost = partial(layer, innermost)
    return innermost
