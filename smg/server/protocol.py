"""The HTTP connection: Sanic's, with our limits, our accounting and an early word about disconnects."""

import asyncio
import io
from typing import Any, cast

from sanic import Request
from sanic.http import Http
from sanic.response import HTTPResponse
from sanic.server import HttpProtocol

HEADER_LIMIT = 65536
# Bytes of an unread body that are read and dropped after an early answer; a longer one ends the connection.
UNREAD_LIMIT = 1 << 20


class GatewayHttp(Http):
    """HTTP/1.1 with the header limit of DESIGN 6 (Sanic's ends at 16 KiB)."""

    HEADER_MAX_SIZE = HEADER_LIMIT

    async def http1(self) -> None:
        """Serve the connection, then let go of it; Sanic does not when an answer is cut.

        Otherwise it would live on in cycles, with its request and all that one holds, until garbage is collected.
        """
        try:
            await super().http1()  # type: ignore[no-untyped-call]
        finally:
            self.response_func = None  # type: ignore[assignment]  # as after a whole answer
            for end in (self.request, self.response):
                if end is not None:
                    end.stream = None


class GatewayRequest(Request):
    """A request whose answer always carries its id, whoever makes it: handler, stream or error page."""

    @property
    def arrived(self) -> bool:
        """Whether the whole body is here already, so that ``receive_body`` need not wait."""
        # Sanic's own annotations know one way only that a body may come.
        http: Any = self.stream
        if http is None or http.expecting_continue or http.request_body == "chunked":
            return False
        return bool(http.request_bytes_left <= len(http.recv_buffer))

    async def receive_body(self) -> None:
        """As Sanic's, without an asynchronous generator, which the event loop would have to keep a record of."""
        http = cast("GatewayHttp | None", self.stream)
        if self.body or http is None:
            return
        first, whole = b"", None
        while http.request_body:
            data = await http.read()
            if not data:
                continue
            if not first:
                first = data
                continue
            if whole is None:
                # Grows in place and gives its bytes away uncopied: an upload is there once.
                whole = io.BytesIO()
                whole.write(first)
            whole.write(data)
        self.body = first if whole is None else whole.getvalue()

    async def respond(self, response: Any = None, **arguments: Any) -> Any:
        out = await super().respond(response, **arguments)
        if isinstance(out, HTTPResponse) and hasattr(self.ctx, "smg"):
            out.headers.setdefault("x-request-id", self.ctx.smg.request_id)
        return out


class Connection(HttpProtocol):
    """One client connection.

    A peer that closes its sending side counts as gone: TCP can't tell the two apart, and a generation nobody reads
    must not go on. The request's ``cancel`` is told first, then Sanic cancels the handler's task.
    """

    HTTP_CLASS = GatewayHttp

    def _setup(self) -> None:
        super()._setup()  # type: ignore[no-untyped-call]
        self.request_handler = self.app.ctx.dispatch

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)  # type: ignore[no-untyped-call]
        self.app.ctx.services.metrics.http_connections_active.add()

    def connection_lost(self, exc: Exception | None) -> None:
        self.app.ctx.services.metrics.http_connections_active.add(v=-1)
        request = self.current_request()
        if request is not None and hasattr(request.ctx, "smg"):
            request.ctx.smg.cancel.cancel("client_disconnect")
        super().connection_lost(exc)  # type: ignore[no-untyped-call]

    def current_request(self) -> Request | None:
        """The request that is being handled, if any."""
        http = self.http
        return http.request if http else None

    def finish(self) -> None:
        """Let the running request be the last one; close at once when there is none."""
        if self.http is not None:
            self.http.keep_alive = False
        self.close_if_idle()


def abort(request: Request) -> None:
    """Cut the request's connection; what was not sent yet is lost."""
    # uvloop's transports are asyncio's by shape, not by class.
    cast("asyncio.WriteTransport", request.transport).abort()


def resume_reading(request: Request) -> None:
    """Read on after the body: Sanic pauses at 64 KiB, and a paused connection would not notice its client leave."""
    transport = cast("asyncio.ReadTransport", request.transport)
    if not transport.is_closing():
        transport.resume_reading()
