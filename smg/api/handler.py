"""Runs any dialect of generations: decode, generate, encode; streamed or buffered."""

import asyncio
from collections.abc import Mapping

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.answer import Answer
from smg.api.body import LARGE_BODY
from smg.api.body import decoded as decoded_body
from smg.api.dialect import Dialect, Handler, Meta
from smg.api.errors import JSON
from smg.api.forward import forward, route
from smg.api.manner import DialectManner
from smg.api.stream import Stream, transport, worker_header
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.debug import shown
from smg.pipeline.fanout import Generating, generate
from smg.pipeline.services import Services

# With it a client asks to be shown what was made of its request.
DEBUG_HEADER = "x-smg-debug"


def generation_handler(dialect: Dialect) -> Handler:
    """Return the Sanic handler of ``dialect``'s generations. What it raises becomes the dialect's error answer."""

    async def handle(request: Request, **params: str) -> HTTPResponse | None:
        ctx: RequestContext = request.ctx.smg
        try:
            return await _handle(dialect, request, params, ctx, request.app.ctx.services)
        except ConnectionError:
            ctx.notes.setdefault("error", "client_disconnected")
            return None
        except asyncio.CancelledError:
            ctx.notes["error"] = "client_disconnected" if gone(request) else "shutting_down"
            raise

    handle.__name__ = handle.__qualname__ = dialect.name
    return handle


def own_handler(dialect: Dialect, handler: Handler) -> Handler:
    """Return ``handler`` with ``dialect``'s headers on its answers."""

    async def handle(request: Request, **params: str) -> HTTPResponse | None:
        response = await handler(request, **params)
        if response is not None:
            response.headers.update(dialect.headers(request.ctx.smg))
        return response

    return handle


def gone(request: Request) -> bool:
    """Tell whether the client has closed the connection."""
    return request.conn_info is not None and bool(request.conn_info.lost)


async def _handle(
    dialect: Dialect, request: Request, params: Mapping[str, str], ctx: RequestContext, services: Services
) -> HTTPResponse | None:
    # Sanic stops reading while a large body waits in its buffer; unless it reads on, a disconnect goes unnoticed.
    transport(request).resume_reading()
    look_into(ctx, services)
    kind, call = await route(dialect.name, request, ctx, services)
    if call is not None:
        manner = DialectManner(dialect, request, params, ctx, call.model.id)
        return await forward(manner, request, ctx, services, call)
    decoded = await decoded_body(dialect.decode, request.body, ctx.headers, params, ctx)
    if len(request.body) > LARGE_BODY:
        # An image in it is megabytes, which the decoded request has once more.
        request.body = decoded.raw = b""
    generation = generate(services, ctx, decoded, kind)
    reason = "error"
    try:
        if decoded.stream:
            await Stream(dialect, request, ctx, services, decoded, generation).run()
            response = None
        else:
            response = await _buffered(dialect, ctx, services, decoded, generation)
        reason = "stop"
        return response
    except ConnectionError:
        reason = "client_disconnect"
        raise
    except asyncio.CancelledError:
        reason = "client_disconnect" if gone(request) else "shutdown"
        raise
    finally:
        await generation.aclose(reason)


def look_into(ctx: RequestContext, services: Services) -> None:
    """Have the request's generations recorded for the client, if it asks for that.

    Raises:
        GatewayError: ``permission_denied`` (403): it may not.
    """
    if ctx.headers.get(DEBUG_HEADER, "").lower() not in ("1", "true"):
        return
    if not ctx.principal.admin and not services.settings.telemetry.debug_header:
        raise GatewayError("permission_denied", f"{DEBUG_HEADER} needs an admin key, or --debug-header.")
    ctx.debug = []


async def _buffered(
    dialect: Dialect, ctx: RequestContext, services: Services, decoded: GenerationRequest, generation: Generating
) -> HTTPResponse:
    await generation.start()
    meta = Meta(decoded, generation.model, clock.created(), generation.decoder, generation.usage)
    accumulator = Accumulator(decoded.choices)
    async for events in generation:
        accumulator.feed(events)
    body = msgspec.json.encode(dialect.answer(ctx, meta, accumulator.finish()))
    if ctx.debug is not None and body.startswith(b"{"):
        await generation.aclose()
        body = body[:-1] + b',"smg_debug":' + await shown(ctx) + b"}"
    return Answer(body, headers={**worker_header(services, ctx), **dialect.headers(ctx)}, content_type=JSON)
