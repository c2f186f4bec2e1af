"""Runs any dialect of generations: decode, generate, encode; streamed or buffered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.dialect import Dialect, Meta
from smg.api.errors import JSON, error_response
from smg.api.stream import Stream, transport, worker_header
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.fanout import Generating, generate
from smg.pipeline.services import Services

Handler: TypeAlias = Callable[[Request], Awaitable[HTTPResponse | None]]

log = logging.getLogger("smg.api")

# Bodies above this many bytes are decoded in a thread, so that other streams do not wait for it.
LARGE_BODY = 1 << 20


def generation_handler(dialect: Dialect) -> Handler:
    """Return the Sanic handler of ``dialect``'s path."""

    async def handle(request: Request) -> HTTPResponse | None:
        ctx: RequestContext = request.ctx.smg
        services: Services = request.app.ctx.services
        ctx.endpoint = dialect.path
        if ctx.deadline is None:
            ctx.deadline = ctx.started + services.settings.server.request_timeout_secs
        try:
            return await _handle(dialect, request, ctx, services)
        except GatewayError as error:
            return error_response(dialect.path, ctx, error)
        except ConnectionError:
            ctx.notes.setdefault("error", "client_disconnected")
            return None
        except asyncio.CancelledError:
            ctx.notes["error"] = "client_disconnected" if gone(request) else "shutting_down"
            raise
        except Exception:
            log.exception("request failed", extra={"request": ctx.request_id})
            return error_response(dialect.path, ctx, GatewayError("internal_error", "internal error"))

    handle.__name__ = handle.__qualname__ = dialect.name
    return handle


def gone(request: Request) -> bool:
    """Tell whether the client has closed the connection."""
    return request.conn_info is not None and bool(request.conn_info.lost)


async def _handle(dialect: Dialect, request: Request, ctx: RequestContext, services: Services) -> HTTPResponse | None:
    # Sanic stops reading while a large body waits in its buffer; unless it reads on, a disconnect goes unnoticed.
    transport(request).resume_reading()
    decoded = await _decode(dialect, request, ctx)
    generation = generate(services, ctx, decoded)
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


async def _decode(dialect: Dialect, request: Request, ctx: RequestContext) -> GenerationRequest:
    body = request.body
    if len(body) <= LARGE_BODY:
        return dialect.decode(body, request.headers, ctx)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, dialect.decode, body, request.headers, ctx)


async def _buffered(
    dialect: Dialect, ctx: RequestContext, services: Services, decoded: GenerationRequest, generation: Generating
) -> HTTPResponse:
    await generation.start()
    meta = Meta(decoded, generation.model, clock.created(), generation.decoder)
    accumulator = Accumulator(decoded.choices)
    async for events in generation:
        accumulator.feed(events)
    body = msgspec.json.encode(dialect.answer(ctx, meta, accumulator.finish()))
    return HTTPResponse(body, headers=worker_header(services, ctx), content_type=JSON)
