"""HttpClient: requests to one engine over a pool of kept connections (spec api-and-ops 4.4)."""

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from smg.core import clock
from smg.core.backends import RawPayload
from smg.engines.http.address import HttpAddress
from smg.engines.http.connection import BrokenExchange, Connection

CONNECT_SECS = 10.0
# Shorter than servers' own limits, so that a kept connection seldom ends in the moment it is used.
IDLE_SECS = 4.0
MAX_IDLE = 128
# Headers that belong to one connection, not to the message (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "trailers", "transfer-encoding", "upgrade"),
    }
)


@functools.cache
def _system_trust() -> ssl.SSLContext:
    """One for all engines: reading the system's certificates takes some milliseconds."""
    return ssl.create_default_context()


class Unreachable(ConnectionError):
    """No connection could be made."""


class Response:
    """The answer to one request: ``status``, ``headers`` (names in lower case) and the body, to be read once.

    Whoever does not read it to its end has to ``close`` it.
    """

    def __init__(self, connection: Connection, free: Callable[[Connection], None]) -> None:
        self._connection = connection
        self._free = free
        self._closed = False
        self.status = connection.status
        self.headers = connection.headers
        self._let_go()

    def header(self, name: str) -> str:
        """A header's value, empty when it is not there."""
        return next((value for found, value in self.headers if found == name), "")

    async def read(self) -> bytes:
        """What has arrived, b"" at the end. Raises BrokenExchange."""
        if self._closed:
            return b""
        data = await self._connection.read()
        self._let_go()
        return data

    async def whole(self, limit: int) -> bytes:
        """The rest of the body. Raises BrokenExchange also for one of more than ``limit`` bytes."""
        parts, size = [], 0
        while data := await self.read():
            parts.append(data)
            size += len(data)
            if size > limit:
                self.close()
                raise BrokenExchange(f"the answer has more than {limit} bytes")
        return b"".join(parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    def close(self) -> None:
        """Break off what is not read yet. Idempotent."""
        if not self._closed:
            self._closed = True
            self._connection.abort()

    def _let_go(self) -> None:
        """Once all has been read the connection may belong to another exchange."""
        if self._connection.finished():
            self._closed = True
            if self._connection.reusable:
                self._free(self._connection)


class HttpClient:
    """Sends requests to ``address``. Use on one event loop only.

    ``tls`` replaces the system's trust store (the environment's ``SSL_CERT_FILE`` extends it).
    """

    def __init__(
        self, address: HttpAddress, *, connect_secs: float = CONNECT_SECS, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self._connect_secs = connect_secs
        self._tls = (tls or _system_trust()) if address.tls else None
        self._idle: list[tuple[float, Connection]] = []
        self._all: set[Connection] = set()
        self._closed = False

    def __len__(self) -> int:
        """Connections that are open."""
        return sum(connection.open for connection in self._all)

    async def request(
        self, method: str, path: str, headers: Iterable[tuple[str, str]] = (), body: RawPayload = b""
    ) -> Response:
        """Send one request and wait for the head of its answer. Cancelling it closes the connection.

        A kept connection that turns out to be closed costs one more attempt on a new one.

        Raises:
            Unreachable: no connection; its cause is TimeoutError when that took too long.
            BrokenExchange: the connection broke before the head was there.
        """
        pieces = [body] if isinstance(body, bytes) else body
        head = self._head(method, path, headers, sum(map(len, pieces)))
        while (connection := self._kept()) is not None:
            try:
                return await self._exchange(connection, head, pieces)
            except BrokenExchange as error:
                if not error.untouched:
                    raise
        return await self._exchange(await self._connect(), head, pieces)

    def close(self) -> None:
        """Close all connections; what runs is broken off."""
        self._closed = True
        for connection in list(self._all):
            connection.abort()
        self._all.clear()
        self._idle.clear()

    def _head(self, method: str, path: str, headers: Iterable[tuple[str, str]], size: int) -> bytes:
        lines = [f"{method} {self.address.base}{path} HTTP/1.1", f"host: {self.address.authority}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if size or method not in ("GET", "HEAD"):
            lines.append(f"content-length: {size}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _kept(self) -> Connection | None:
        """The connection that was used last, if one is there that is not too old."""
        now = clock.monotonic()
        while self._idle:
            since, connection = self._idle.pop()
            if connection.open and now - since < IDLE_SECS:
                return connection
            connection.abort()
            self._all.discard(connection)
        return None

    async def _connect(self) -> Connection:
        address = self.address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_secs):
                _, connection = await loop.create_connection(Connection, address.host, address.port, ssl=self._tls)
        except TimeoutError as error:
            raise Unreachable(f"no connection within {self._connect_secs:g} s") from error
        except OSError as error:
            raise Unreachable(str(error)) from error
        self._all = {kept for kept in self._all if kept.open}
        self._all.add(connection)
        return connection

    async def _exchange(self, connection: Connection, head: bytes, body: Sequence[bytes | memoryview]) -> Response:
        connection.send(head, body)
        try:
            await connection.head()
        except BaseException:
            connection.abort()
            raise
        return Response(connection, self._free)

    def _free(self, connection: Connection) -> None:
        if self._closed or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        now = clock.monotonic()
        while self._idle and now - self._idle[0][0] >= IDLE_SECS:
            self._idle.pop(0)[1].abort()
        self._idle.append((now, connection))
