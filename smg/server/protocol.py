"""The HTTP connection: Sanic's, strict about heads, with our limits, accounting and an early word about disconnects."""

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Generator, Mapping
from typing import Any, cast

from httptools import HttpParserInvalidURLError
from sanic import Request
from sanic.exceptions import BadRequest, RequestCancelled, RequestTimeout
from sanic.headers import format_http1_response
from sanic.http import Http, Stage
from sanic.http.http1 import HTTP_CONTINUE
from sanic.response import HTTPResponse
from sanic.server import HttpProtocol

from smg._native.http_head import ordinary_head
from smg.api.answer import Answer
from smg.core import clock
from smg.server import cors
from smg.server.crowd import GUEST_SECONDS, Crowd, Place
from smg.server.strict import check_chunk_line, check_head

HEADER_LIMIT = 65536
# Bytes of an unread body that are read and dropped after an early answer; a longer one ends the connection.
UNREAD_LIMIT = 1 << 20
# So long what comes after that is dropped before the connection is closed.
LINGER_SECONDS = 2.0
# So long the sender of a body may pause within it.
BODY_SILENCE_SECONDS = 60.0
# A body that is slower is one that holds a connection on purpose.
BODY_BYTES_PER_SECOND = 1024
BODILESS = frozenset({204, 304})

# Sanic waits no longer for the end of a chunk's line.
_LONGEST_CHUNK_LINE = 64


class _Done:
    """What there is to wait for when all is done already."""

    def __await__(self) -> Generator[Any, Any, None]:
        return _NOTHING


_NOTHING = cast("Generator[Any, Any, None]", iter(()))
_DONE = _Done()


class GatewayHttp(Http):
    """HTTP/1.1 with the header limit of DESIGN 6 (Sanic's ends at 16 KiB)."""

    __slots__ = ("_body_began", "_body_bytes")

    HEADER_MAX_SIZE = HEADER_LIMIT

    async def http1(self) -> None:
        """Serve the connection, then let go of it; Sanic does not when an answer is cut.

        Otherwise it would live on in cycles, with its request and all that one holds, until garbage is collected.
        """
        try:
            await super().http1()  # type: ignore[no-untyped-call]
            if self.request_body:
                await self._linger()
        except RequestTimeout:
            # It has its answer, and the rest of its body does not come.
            pass
        finally:
            self.response_func = None  # type: ignore[assignment]  # as after a whole answer
            for end in (self.request, self.response):
                if end is not None:
                    end.stream = None

    async def _linger(self) -> None:
        """Have the client read its answer although nobody reads what it still sends.

        Were the connection closed at once, its system would throw the answer away as soon as it sends more (RFC 9112
        9.6).
        """
        transport = self.protocol.transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while True:
                    self.recv_buffer.clear()
                    await self._receive_more()

    def create_empty_request(self) -> None:
        """What stands for a request whose head was refused; it knows at least who has sent it."""
        super().create_empty_request()
        self.request.conn_info = self.protocol.conn_info

    def http1_request_header(self) -> Awaitable[None]:  # type: ignore[override]
        """Read the head of a request, within the time it may take however its bytes drip.

        Raises BadRequest also where Sanic raises what it cannot answer, and RequestTimeout.
        """
        self._body_began = clock.monotonic()
        self._body_bytes = 0
        head = ordinary_head(self.recv_buffer, self.HEADER_MAX_SIZE)
        if head is None:
            return self._any_head()
        self._ordinary_head(*head)
        return _DONE

    def _ordinary_head(
        self, head: bytes, method: str, url: bytes, fields: list[tuple[str, str]], length: int, keep_alive: bool
    ) -> None:
        """Do what Sanic does after a head that it has looked at line by line. Raises BadRequest for the URL."""
        # Sanic's own annotations know less than it takes.
        protocol: Any = self.protocol
        app = protocol.app
        self.head_only = method.upper() == "HEAD"
        self.keep_alive = keep_alive and app.config["KEEP_ALIVE"]
        try:
            request = protocol.request_class(url, fields, "1.1", method, transport=protocol.transport, app=app)
        except (HttpParserInvalidURLError, BadRequest):
            raise BadRequest("the request's URL is malformed") from None
        request.head = head
        self.request_bytes_left = self.request_bytes = 0
        if length >= 0:
            self.request_bytes_left = self.request_bytes = length
            self.request_body = cast("Any", True)
        del self.recv_buffer[: len(head) + 4]
        self.request, request.stream = request, self
        protocol.state["requests_count"] += 1

    async def _any_head(self) -> None:
        """As Sanic's, which waits for a head, takes those that are not ordinary, and refuses what it cannot read."""
        try:
            if b"\r\n\r\n" in self.recv_buffer:
                await super().http1_request_header()  # type: ignore[no-untyped-call]
            else:
                async with asyncio.timeout(self.protocol.request_timeout):
                    await super().http1_request_header()  # type: ignore[no-untyped-call]
        except TimeoutError:
            raise RequestTimeout("the request's head did not arrive in time") from None
        except HttpParserInvalidURLError:
            self.url = None
            raise BadRequest("the request's URL is malformed") from None
        except BadRequest as error:
            # The page that tells of it needs a URL of its own.
            self.url = None
            raise BadRequest(_about_head(str(error))) from None

    async def read(self) -> bytes | None:
        """As Sanic's. Raises RequestTimeout for a body that pauses for BODY_SILENCE_SECONDS, or that has come slower
        than BODY_BYTES_PER_SECOND for longer than that."""
        late = clock.monotonic() - self._body_began - self._body_bytes / BODY_BYTES_PER_SECOND
        if late > BODY_SILENCE_SECONDS:
            raise _too_slow(self)
        try:
            async with asyncio.timeout(BODY_SILENCE_SECONDS):
                # Sanic's own annotations know one way only that a body may come.
                coming: Any = self.request_body
                if coming == "chunked" and not self.request_bytes_left:
                    await self._chunk_line()
                data = await super().read()
        except TimeoutError:
            raise _too_slow(self) from None
        self._body_bytes += len(data or b"")
        return data

    async def _chunk_line(self) -> None:
        """Wait for the line before the next chunk. Raises BadRequest for one that is none."""
        if self.expecting_continue:
            self.expecting_continue = False
            await self._send(HTTP_CONTINUE)
        buffer = self.recv_buffer
        while buffer.find(b"\r\n", 2) < 0 and len(buffer) <= _LONGEST_CHUNK_LINE:
            await self._receive_more()
        try:
            check_chunk_line(buffer)
        except BadRequest:
            self.keep_alive = False
            raise

    async def http1_response_header(self, data: bytes, end_stream: bool) -> None:
        """As Sanic's, but a stream to a client of HTTP/1.0 ends with the connection (RFC 9112 6.1)."""
        response = self.response
        assert response is not None
        if type(response) is Answer and self.takes_whole(data):
            self.response_size = len(response.body or b"")
            self.response_func = None  # type: ignore[assignment]  # as Sanic's, behind the last byte
            await self._send(response.whole(keep_alive=self.keep_alive))
            self.stage = Stage.IDLE
            return
        framed = end_stream or self.head_only or "content-length" in response.headers
        if framed or self.request.version != "1.0" or response.status in BODILESS:
            await super().http1_response_header(data, end_stream)
            return
        self.keep_alive = False
        response.headers["connection"] = "close"
        self.response_func = self._until_close
        await self._send(format_http1_response(response.status, response.processed_headers) + data)
        self.stage = Stage.RESPONSE

    def takes_whole(self, data: bytes) -> bool:
        """Whether an answer that has its body, and of which ``data`` is to be sent, can go out as it is."""
        return not (data or self.head_only or self.expecting_continue) and self.request.version == "1.1"

    async def _until_close(self, data: bytes, end_stream: bool) -> None:
        if data:
            await self._send(data)
        if end_stream:
            self.response_func = None  # type: ignore[assignment]
            self.stage = Stage.IDLE


def _about_head(message: str) -> str:
    """Our own words in the place of Sanic's about the head of a request; what ours say already stays."""
    if message.startswith(("Bad URL", "URL may only")):
        return "the request's URL is malformed"
    return "the request's head is malformed" if message == "Bad Request" else message


def _too_slow(http: Http) -> RequestTimeout:
    # What is still to come is not waited for.
    http.keep_alive = False
    http.request_body = None
    return RequestTimeout("the request's body does not arrive, or too slowly")


class GatewayRequest(Request):
    """A request whose answer always carries its id, whoever makes it: handler, stream or error page.

    ``fields`` are its headers by names in small letters; of those that came several times the first one.
    """

    def __init__(self, url_bytes: bytes, headers: Any, version: str, method: str, *, head: bytes = b"", **more: Any):
        """As Sanic's. Raises BadRequest for a head that is not quite one; Sanic gives none where it makes one up."""
        if head:
            check_head(head, headers, version)
        fields = headers if type(headers) is list else [(name.lower(), value) for name, value in headers.items()]
        self.fields: Mapping[str, str] = dict(fields)
        if len(self.fields) < len(fields):
            self.fields = dict(reversed(fields))
        super().__init__(url_bytes, headers, version, method, head=head, **more)

    def take_body(self) -> bool:
        """Take the body if it is here already, whole and not too large; False: ``receive_body`` has to."""
        # Sanic's own annotations know one way only that a body may come.
        http: Any = self.stream
        if http is None or http.expecting_continue or http.request_body == "chunked":
            return False
        size, buffer = http.request_bytes_left, http.recv_buffer
        if not 0 <= size <= len(buffer) or size > http.request_max_size or http.request_bytes != size:
            return False
        self.body = bytes(buffer[:size])
        del buffer[:size]
        http.request_bytes_left, http.request_body = 0, None
        return True

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
        self._mark(out)
        return out

    async def answer(self, response: HTTPResponse) -> None:
        """Answer with the whole of ``response``; the application has no middleware that wants to see it.

        Raises as Sanic's ``respond`` when an answer has begun, and RequestCancelled when the client has left.
        """
        http = cast("GatewayHttp | None", self.stream)
        if http is None or http.response is not None:
            await self.respond(response)
            return
        http.respond(response)
        self.responded = True
        self._mark(response)
        await http.send(b"", end_stream=True)

    def _mark(self, response: object) -> None:
        ctx = self.ctx
        if isinstance(response, HTTPResponse) and hasattr(ctx, "smg"):
            response.headers.setdefault("x-request-id", ctx.smg.request_id)
            if "origin" in self.fields:
                response.headers.update(cors.headers_of(self))


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
        crowd: Crowd = self.app.ctx.crowd
        place = crowd.place(len(self.connections))
        if place is Place.REFUSED:
            crowd.refuse(transport)
            return
        if place is Place.GUEST:
            self.request_handler = self.app.ctx.dispatch_guest
            self.loop.call_later(GUEST_SECONDS, transport.abort)
        super().connection_made(transport)  # type: ignore[no-untyped-call]
        self.app.ctx.services.metrics.http_connections_active.add()

    async def send(self, data: bytes) -> None:
        """As Sanic's, without a coroutine to wait in where the transport takes more. Raises RequestCancelled."""
        if not self._can_write.is_set():
            await self._can_write.wait()
        transport = self.transport
        if transport is None or transport.is_closing():
            raise RequestCancelled
        transport.write(data)
        self._time = clock.monotonic()

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
