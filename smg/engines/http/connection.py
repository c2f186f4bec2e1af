"""One HTTP/1.1 connection to an engine, as an asyncio protocol: bytes in, head and body out (DESIGN 6).

It carries one exchange at a time. The body is handed on in the pieces that arrive, several at once when several have
arrived; while nobody takes them, the connection stops reading after ``HIGH_WATER`` bytes, so that a slow client holds
up its own engine stream and no memory.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

import httptools

# Bytes of a body that wait at most (and one more read).
HIGH_WATER = 64 << 10
_NO_BODY = frozenset({204, 304})


class BrokenExchange(ConnectionError):
    """The connection ended, or sent what is no HTTP. ``untouched``: before any byte of an answer."""

    def __init__(self, message: str, *, untouched: bool = False) -> None:
        super().__init__(message)
        self.untouched = untouched


class Connection(asyncio.Protocol):
    """A connection. ``status`` and ``headers`` (names in lower case) are of the running exchange, valid after ``head``.

    ``reusable`` tells, once the exchange is over, that the connection can carry another one.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._lost = False
        self._waiter: asyncio.Future[None] | None = None
        self.headers: list[tuple[str, str]] = []
        self._paused = False
        self._reset()
        self._over = True

    @property
    def open(self) -> bool:
        """Whether it is there at all."""
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    def send(self, data: bytes, body: Sequence[bytes | memoryview]) -> None:
        """Begin an exchange, with the pieces of a body, which are not copied where they are large."""
        assert self._transport is not None
        assert self._over, "an exchange is running"
        self._reset()
        if sum(map(len, body)) < HIGH_WATER:
            self._transport.write(b"".join([data, *body]))
        else:
            for piece in (data, *body):
                self._transport.write(piece)
        if not self.open:
            self._fail(BrokenExchange("the connection was lost", untouched=True))

    async def head(self) -> None:
        """Wait for status and headers. Raises BrokenExchange."""
        while not self._headed:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """Return what has arrived of the body, b"" at its end. Raises BrokenExchange."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._over:
                return b""
            await self._wait()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            assert self._transport is not None
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    def finished(self) -> bool:
        """Whether the exchange is over and all of it has been read."""
        return self._over and not self._chunks and self._error is None

    def abort(self) -> None:
        """Close at once; an exchange that runs is broken off, which the engine sees as its client leaving."""
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by shape, not by class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._over:
            # Nothing was asked: whoever speaks now is out of step.
            self.abort()
            return
        self._touched = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(BrokenExchange("the engine wants another protocol"))
        except httptools.HttpParserError as error:
            self._fail(BrokenExchange(f"not HTTP: {error}"))
        if self._spoilt:
            self.reusable = False
            self.abort()
        if self._size >= HIGH_WATER and not self._paused and not self._over:
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()
        self._notify()

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if error is None:
            self._end()
        else:
            self._fail(BrokenExchange(str(error) or type(error).__name__, untouched=not self._touched))

    # -- httptools

    def on_message_begin(self) -> None:
        if self._over:
            # A second answer to one request: the connection is out of step.
            self._spoilt = True
        else:
            self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._spoilt:
            return
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._spoilt:
            return
        self.status = status
        names = {name for name, _ in self.headers}
        self._to_eof = status not in _NO_BODY and names.isdisjoint({"content-length", "transfer-encoding"})
        self._headed = True

    def on_body(self, data: bytes) -> None:
        if self._spoilt:
            return
        self._chunks.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        if self._headed and not self._over:
            self._over = True
            self.reusable = not self._to_eof and self._parser.should_keep_alive()
            if not self.reusable:
                self._close()

    # -- inside

    def _reset(self) -> None:
        self.status = 0
        self.headers = []
        self.reusable = False
        self._headed = False
        self._over = False
        self._to_eof = False
        self._touched = False
        self._spoilt = False
        self._error: BrokenExchange | None = None
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def _end(self) -> None:
        """The engine has closed its side: the end of a body that has no other, else a break."""
        if self._over:
            return
        if self._headed and self._to_eof:
            self._over = True
            self._close()
            self._notify()
        else:
            self._fail(BrokenExchange("the engine closed the connection", untouched=not self._touched))

    def _fail(self, error: BrokenExchange) -> None:
        if not self._over:
            self._over = True
            self._error = error
            self.abort()
            self._notify()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
