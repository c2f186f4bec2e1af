"""One streamed answer: events to bytes to the client, one write per engine batch (spec api-and-ops 1.6).

Until the first byte is out an error is an ordinary HTTP error; after it, it is the dialect's error event and no end
marker follows. The first byte may also be a keep-alive, when the first token takes long.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol, cast

from sanic import Request

from smg.api.dialect import Meta, StreamEncoder
from smg.api.keepalive import KeepAlive
from smg.api.sink import ResponseSink
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event, Failure
from smg.core.request import GenerationRequest
from smg.core.stream import NoDecoder
from smg.pipeline.debug import shown
from smg.pipeline.fanout import Generating
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.services import Services

EVENT_STREAM = "text/event-stream; charset=utf-8"
LAST_WORD_SECS = 5.0
STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Encoding(Protocol):
    """The part of a dialect that streams need."""

    def encoder(self, ctx: RequestContext, meta: Meta) -> StreamEncoder: ...

    def headers(self, ctx: RequestContext) -> Mapping[str, str]: ...


class Stream:
    """Runs one streamed generation to its end; the caller closes the generation."""

    def __init__(
        self,
        dialect: Encoding,
        request: Request,
        ctx: RequestContext,
        services: Services,
        decoded: GenerationRequest,
        generation: Generating,
    ) -> None:
        self._dialect = dialect
        self._request = request
        self._ctx = ctx
        self._services = services
        self._decoded = decoded
        self._generation = generation
        self._encoder: StreamEncoder | None = None
        self._interrupt = Interrupt(ctx)
        self._sink = ResponseSink(request, EVENT_STREAM, self._headers)
        self._silence = services.settings.server.sse_keepalive_secs
        self._created = clock.created()

    async def run(self) -> None:
        """Serve the stream.

        Raises:
            GatewayError: nothing has been sent; the error may still be the whole answer.
            ConnectionError: the client has gone, or takes nothing any more.
        """
        keepalive = KeepAlive(self._sink, self._silence, lambda: self._any_encoder().keepalive())
        try:
            if await self._start(keepalive):
                await self._relay()
            keepalive.stop()
            await self._deliver(end=True)
        finally:
            keepalive.stop()
            self._interrupt.close()
            self._sink.close()

    async def _start(self, keepalive: KeepAlive) -> bool:
        """Wait for the first batch; False when that failed after a keep-alive had already begun the answer."""
        try:
            await self._generation.start()
        except GatewayError as error:
            keepalive.stop()
            if not self._sink.started:
                raise
            self._sink.write(self._any_encoder().failure(error))
            return False
        generation = self._generation
        meta = Meta(self._decoded, generation.model, self._created, generation.decoder, generation.usage)
        self._encoder = self._dialect.encoder(self._ctx, meta)
        return True

    async def _relay(self) -> None:
        encoder = self._any_encoder()
        direct = self._generation.direct(self._sink, encoder)
        self._sink.write(encoder.preamble(direct=direct))
        async for events in self._generation:
            whole = self._write(encoder, events)
            if not self._generation.done:
                await self._deliver()
                continue
            # Goes out together with the last batch.
            await self._show()
            if whole:
                self._sink.write(encoder.closing())

    async def _show(self) -> None:
        """Put what was made of the request into a comment, for who asked to see it."""
        if self._ctx.debug is not None:
            await self._generation.aclose()
            self._sink.write(b": smg-debug " + await shown(self._ctx) + b"\n\n")

    def _write(self, encoder: StreamEncoder, events: list[Event]) -> bool:
        """Encode one batch; False when it ends in a Failure."""
        last = events[-1] if events else None
        if not isinstance(last, Failure):
            self._sink.write(encoder.events(events))
            return True
        self._sink.write(encoder.events(events[:-1]))
        error = GatewayError(
            last.code, last.message, status=last.status, retry_after=last.retry_after, param=last.param
        )
        self._sink.write(encoder.failure(error))
        return False

    async def _deliver(self, *, end: bool = False) -> None:
        """Send what was written, unless the request is cancelled while the client does not read."""
        if not end and not self._ctx.cancel and self._sink.flush():
            return
        send = self._sink.finish() if end else self._sink.drain()
        try:
            if self._ctx.cancel:
                # The last word of a cancelled stream; it usually fits into the transport's buffer.
                await asyncio.wait_for(send, LAST_WORD_SECS)
            else:
                await self._interrupt.run(send)
        except (GatewayError, TimeoutError):
            transport(self._request).abort()
            raise ConnectionAbortedError("the client does not read its answer") from None

    def _headers(self) -> dict[str, str]:
        return {**STREAM_HEADERS, **worker_header(self._services, self._ctx), **self._dialect.headers(self._ctx)}

    def _any_encoder(self) -> StreamEncoder:
        """The encoder; before the model is known, one that can only encode keep-alives and failures."""
        if self._encoder is None:
            meta = Meta(self._decoded, self._decoded.model, self._created, NoDecoder())
            return self._dialect.encoder(self._ctx, meta)
        return self._encoder


def transport(request: Request) -> asyncio.Transport:
    """The connection of ``request``; Sanic's own type for it leaves out half of what it can do."""
    return cast("asyncio.Transport", request.transport)


def worker_header(services: Services, ctx: RequestContext) -> dict[str, str]:
    """``x-smg-worker`` with the chosen worker's id and, of a pair, ``x-smg-prefill-worker`` and maybe
    ``x-smg-encode-worker`` (several are separated by commas), and ``x-smg-routing-decision`` with how it was chosen,
    where the operator has opted in; ``x-smg-warning`` where the worker could not do all that was asked, and
    ``x-smg-resumed`` with how often another one has taken over."""
    notes, telemetry = ctx.notes, services.settings.telemetry
    found = {}
    if "warning" in notes:
        found["x-smg-warning"] = notes["warning"]
    if "resumed" in notes:
        found["x-smg-resumed"] = notes["resumed"]
    if telemetry.worker_header:
        names = {"x-smg-worker": "worker", "x-smg-prefill-worker": "prefill", "x-smg-encode-worker": "encode"}
        found |= {header: notes[note] for header, note in names.items() if note in notes}
    if telemetry.routing_decision_header and "decision" in notes:
        found["x-smg-routing-decision"] = notes["decision"]
    return found
