"""The Sink of a streamed HTTP answer: bounded, one write per flush (DESIGN 6, client side; field case ME-01)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from sanic import Request
from sanic.exceptions import RequestCancelled
from sanic.response import BaseHTTPResponse

from smg.api.direct_socket import DirectSocket, chunked
from smg.core.stream import Feeder

# Above this many unsent bytes ``write`` asks for a drain. Sanic's own mark for its transport is as high, so that one
# answer holds about twice this at most, whatever its client does.
HIGH_WATER = 64 << 10


class ResponseSink:
    """Collects bytes and sends them as one HTTP chunk per ``drain``; the first one sends the headers too.

    ``headers`` is asked when they are sent, because some are only known then; a content type among them wins.
    ``started`` is True from that moment on: errors can't change the status any more.

    It may lend its socket to a native source (``core.stream.SocketSink``), to one at a time, and takes it back before
    it sends anything itself.
    """

    def __init__(self, request: Request, content_type: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self._request = request
        self._content_type = content_type
        # Asked once and forgotten: whoever holds the sink mostly is the one to ask.
        self._headers: Callable[[], Mapping[str, str]] | None = headers
        self._response: BaseHTTPResponse | None = None
        # Once the head has been sent, where chunks may be written to; None: Sanic sends everything.
        self._chunks: asyncio.Transport | None = None
        self.started = False
        self._parts: list[bytes] = []
        self._size = 0
        self._lock = asyncio.Lock()
        self._socket: DirectSocket | None = None
        self._feeder: Feeder | None = None
        self._last_sent = asyncio.get_running_loop().time()

    @property
    def last_sent(self) -> float:
        """When bytes were last sent, in seconds of the event loop's clock, which is the monotonic one."""
        return self._last_sent if self._feeder is None else max(self._last_sent, self._feeder.last_sent)

    @property
    def busy(self) -> bool:
        """True while bytes are being sent or wait for a slow client."""
        return self._lock.locked()

    def write(self, data: bytes) -> bool:
        """See ``core.stream.Sink``."""
        if data:
            self._parts.append(data)
            self._size += len(data)
        return self._size < HIGH_WATER

    def flush(self) -> bool:
        """Send what was written, if the transport takes it at once; False: ``drain`` has to.

        For each token of a stream: what Sanic does besides takes as long as all the rest of sending.
        """
        if not self._parts:
            return True
        way = self._chunks
        if way is None or self._feeder is not None or self.busy or way.is_closing() or way.get_write_buffer_size():
            return False
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        way.write(b"%x\r\n%b\r\n" % (len(data), data))
        self._last_sent = asyncio.get_running_loop().time()
        return True

    async def drain(self) -> None:
        """Send what was written; returns when the transport can take more. Raises ConnectionError."""
        if self._parts:
            await self._send(end=False)

    async def finish(self) -> None:
        """Send what was written and end the body. Raises ConnectionError."""
        await self._send(end=True)

    def lend(self, feeder: Feeder) -> int:
        """See ``core.stream.SocketSink``."""
        if not self.started or self._parts or self.busy or self._feeder is not None:
            return -1
        if self._socket is None:
            self._socket = DirectSocket(self._request)
        descriptor = self._socket.descriptor()
        if descriptor >= 0:
            self._feeder = feeder
        return descriptor

    def give_back(self, rest: bytes) -> None:
        """See ``core.stream.SocketSink``."""
        if self._feeder is not None:
            self._last_sent = self.last_sent
            self._feeder = None
        if rest and self._socket is not None:
            self._socket.write(rest)

    def close(self) -> None:
        """Let go of the socket; nothing is written any more. Idempotent."""
        self._headers = None
        self._chunks = None
        if self._feeder is not None:
            self._feeder.disarm()
        if self._socket is not None:
            self._socket.close()

    async def _send(self, *, end: bool) -> None:
        async with self._lock:
            if self._feeder is not None:
                self._feeder.disarm()
            data = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self.started = True
            try:
                if self._response is None:
                    assert self._headers is not None, "nothing is sent after close"
                    self._response = await self._request.respond(
                        status=200, headers=dict(self._headers()), content_type=self._content_type
                    )
                    self._headers = None
                await self._response.send(data, end_stream=end)
                if not end and self._chunks is None and chunked(self._request):
                    self._chunks = cast("asyncio.Transport", self._request.transport)
            except RequestCancelled:
                raise ConnectionResetError("the client has closed the connection") from None
            self._last_sent = asyncio.get_running_loop().time()
