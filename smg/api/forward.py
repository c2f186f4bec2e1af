"""Answers that pass through: an HTTP engine's own status, headers and bytes (DESIGN 3, raw; spec api-and-ops 1.6, 2.3).

A body is sent on chunk by chunk, and the next one is read when the client has taken the last. Server-sent events go out
whole, so that a keep-alive or a word of ours on a broken stream never lands inside one.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from sanic import Request
from sanic.compat import Header
from sanic.exceptions import RequestCancelled
from sanic.response import HTTPResponse

from smg.api.body import LARGE_BODY
from smg.api.dialect import Handler
from smg.api.hints import hints
from smg.api.keepalive import KeepAlive
from smg.api.manner import Manner
from smg.api.sink import ResponseSink
from smg.api.stream import EVENT_STREAM, STREAM_HEADERS, transport, worker_header
from smg.core.backends import BackendKind, RawResponse
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.http.errors import message_of
from smg.engines.http.fields import Fields
from smg.engines.http.routes import BY_DIALECT
from smg.engines.transport.errors import presentable
from smg.pipeline.backend import choose
from smg.pipeline.raw_call import Call, RawCall, ask_for_usage, forwarded, is_events
from smg.pipeline.relay import Relay
from smg.pipeline.services import Services

_MAX_WORDS = 64 << 10
_LENGTH = "content-length"


async def route(
    dialect: str, request: Request, ctx: RequestContext, services: Services
) -> tuple[BackendKind, RawCall | None]:
    """The kind of backend for a request in ``dialect``, and the call where that kind is ``raw``.

    What is wrong with a body, or with the model it names, is left to the dialect to say.
    """
    if "raw" not in services.router.kinds():
        return "tokens", None
    read = partial(Fields, request.body)
    try:
        loop = asyncio.get_running_loop()
        fields = read() if len(request.body) <= LARGE_BODY else await loop.run_in_executor(None, read)
        kind, model = choose(services, fields.text("model"), dialect)
    except GatewayError:
        return "tokens", None
    if kind != "raw":
        return kind, None
    found = BY_DIALECT[dialect]
    call = RawCall(
        model,
        fields,
        found.paths,
        found.feature,
        forwarded(ctx, request.headers),
        hints(ctx.headers),
        fields.get("stream") is True,
    )
    ask_for_usage(call, dialect)
    return kind, call


async def forward(
    manner: Manner, request: Request, ctx: RequestContext, services: Services, call: Call
) -> HTTPResponse | None:
    """Serve one request by passing it on. Raises GatewayError while nothing has been sent, ConnectionError after."""
    relay = Relay(services, ctx, call)
    reason = "error"
    try:
        if call.stream:
            await ForwardedStream(manner, request, ctx, services, relay).run()
        else:
            answer = await relay.start()
            await send_whole(request, answer, relay, {**worker_header(services, ctx), **manner.headers()})
        reason = "stop"
        return None
    except ConnectionError:
        reason = "client_disconnect"
        raise
    except asyncio.CancelledError:
        gone = request.conn_info is not None and bool(request.conn_info.lost)
        reason = "client_disconnect" if gone else "shutdown"
        raise
    finally:
        await relay.aclose(reason)


def or_forward(name: str, handler: Handler) -> Handler:
    """Return ``handler``, except that what an HTTP engine's model is asked goes to the engine, as dialect ``name``."""

    async def handle(request: Request, **params: str) -> HTTPResponse | None:
        ctx, services = request.ctx.smg, request.app.ctx.services
        _, call = await route(name, request, ctx, services)
        if call is None:
            return await handler(request, **params)
        relay = Relay(services, ctx, call)
        try:
            await send_whole(request, await relay.start(), relay, worker_header(services, ctx))
        except ConnectionError:
            ctx.notes.setdefault("error", "client_disconnected")
        finally:
            await relay.aclose("client_disconnect")
        return None

    return handle


async def send_whole(request: Request, answer: RawResponse, relay: Relay, more: Mapping[str, str]) -> None:
    """Send an answer that is no event stream; one that breaks off ends the connection, so that it can't look whole.

    Raises:
        GatewayError: it broke off before anything was sent.
        ConnectionError: it did so later, or the client has gone.
    """
    headers = Header(answer.headers)
    headers.update(more)
    # A body that was held until it was whole may have another length than the engine's.
    data = await relay.read()
    if relay.over and _LENGTH in headers:
        headers[_LENGTH] = str(len(data))
    try:
        response = await request.respond(status=answer.status, headers=headers, content_type=None)
        while data:
            await response.send(data)
            data = await relay.read()
        await response.send(b"", end_stream=True)
    except RequestCancelled:
        raise ConnectionResetError("the client has closed the connection") from None
    except GatewayError as error:
        transport(request).abort()
        raise ConnectionAbortedError(f"the answer broke off: {error.code}") from None


class ForwardedStream:
    """One forwarded answer that the client wants as a stream; the caller closes the relay."""

    def __init__(self, manner: Manner, request: Request, ctx: RequestContext, services: Services, relay: Relay) -> None:
        self._manner = manner
        self._request = request
        self._ctx = ctx
        self._services = services
        self._relay = relay
        self._answer: RawResponse | None = None
        self._sink = ResponseSink(request, EVENT_STREAM, self._headers)

    async def run(self) -> None:
        """Serve the stream. Raises as ``forward``."""
        keepalive = KeepAlive(self._sink, self._services.settings.server.sse_keepalive_secs, self._manner.keepalive)
        try:
            answer = await self._start(keepalive)
            if answer is not None and not self._sink.started and not is_events(answer):
                keepalive.stop()
                await send_whole(self._request, answer, self._relay, self._own_headers())
                return
            if answer is not None:
                await self._relay_events(answer)
            keepalive.stop()
            await self._sink.finish()
        finally:
            keepalive.stop()
            self._sink.close()

    async def _start(self, keepalive: KeepAlive) -> RawResponse | None:
        """Wait for the answer; None when there is none and a keep-alive had already begun ours."""
        try:
            self._answer = await self._relay.start()
        except GatewayError as error:
            keepalive.stop()
            if not self._sink.started:
                raise
            self._sink.write(self._manner.failure(error))
        return self._answer

    async def _relay_events(self, answer: RawResponse) -> None:
        sent = b""
        try:
            if not is_events(answer):
                raise await self._refused(answer)
            while data := await self._relay.read():
                self._sink.write(data)
                sent = data
                if not self._sink.flush():
                    await self._sink.drain()
        except GatewayError as error:
            self._sink.write(self._manner.failure(error, sent))

    async def _refused(self, answer: RawResponse) -> GatewayError:
        """The engine's refusal as an error, for a stream that has begun with keep-alives."""
        body = b""
        while len(body) < _MAX_WORDS and (data := await self._relay.read()):
            body += data
        said = presentable(message_of(body))
        return GatewayError("invalid_request", said or "the engine refused the request", status=answer.status)

    def _headers(self) -> dict[str, str]:
        kept = {} if self._answer is None else {n: v for n, v in self._answer.headers if n != _LENGTH}
        return {**STREAM_HEADERS, **kept, **self._own_headers()}

    def _own_headers(self) -> dict[str, str]:
        return {**worker_header(self._services, self._ctx), **self._manner.headers()}
