"""The native transport: streams over our own HTTP/2 connections, unary calls over grpcio (DESIGN 6, engine side).

One connection per engine and process, opened on first use, and up to four when streams pile up. It is replaced after
GOAWAY, a failed keepalive or three calls in a row that found it unavailable (spec engine-contract 4.2).
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from smg._native.inlet import Tokens
from smg._native.wire import Layout
from smg.engines.transport.address import parse
from smg.engines.transport.base import MESSAGE_LIMIT
from smg.engines.transport.errors import RpcError, from_status
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2_call import H2Call
from smg.engines.transport.h2_connection import H2Connection, Timing
from smg.engines.transport.h2_headers import Status, request_head, request_tail

Item = TypeVar("Item")

_UNAVAILABLE_LIMIT = 3
_STREAMS_PER_CONNECTION = 128
_MAX_CONNECTIONS = 4

# Bytes of a request from which on grpc.aio is not to carry it to an engine without TLS: it copies requests on the event
# loop with the GIL held.
LARGE = 64 << 10


class H2Transport:
    """A ``TokenTransport`` to ``url``.

    ``root_certificates`` (PEM) replaces the system's trust store for ``grpcs://``; ``message_limit`` is as in
    ``Connect``. Raises ValueError for a URL that is no engine address.
    """

    def __init__(
        self,
        url: str,
        root_certificates: bytes | None = None,
        timing: Timing = Timing(),  # noqa: B008 - frozen
        message_limit: int = MESSAGE_LIMIT,
    ) -> None:
        self._address = parse(url)
        self._roots = root_certificates
        self._timing = timing
        self._message_limit = message_limit
        self._unary = GrpcioTransport(url, root_certificates, message_limit)
        self._heads: dict[str, bytes] = {}
        # Those that take calls, with their failures in a row; those that only finish what they have.
        self._connections: dict[H2Connection, int] = {}
        self._leaving: set[H2Connection] = set()
        self._closed = False

    async def unary(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        if len(message) >= LARGE and not self._address.tls:
            return await self.sole(path, message, timeout, metadata)
        return await self._unary.unary(path, message, timeout, metadata)

    def stream(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> H2Call[bytes]:
        headers = self._headers(path, timeout, metadata)
        call: H2Call[bytes] = H2Call(headers, message, timeout, layout=None, largest=self._message_limit)
        self.restart(call)
        return call

    def generate(
        self,
        path: str,
        message: bytes,
        timeout: float | None,
        metadata: Mapping[str, str] | None = None,
        *,
        layout: Layout,
    ) -> H2Call[bytes | Tokens]:
        headers = self._headers(path, timeout, metadata)
        call: H2Call[bytes | Tokens] = H2Call(headers, message, timeout, layout=layout, largest=self._message_limit)
        self.restart(call)
        return call

    async def sole(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        """Like ``unary``, over our own connection, which does not copy a large message."""
        call = self.stream(path, message, timeout, metadata)
        answers: list[bytes] = []
        try:
            while fresh := await call.read():
                answers += fresh
        finally:
            call.cancel()
        if len(answers) != 1:
            raise from_status("INTERNAL", f"{len(answers)} messages answered a unary call", established=True)
        return answers[0]

    @property
    def connected(self) -> bool:
        """Whether a connection stands that takes calls."""
        return any(connection.ready for connection in self._connections)

    def connect(self) -> None:
        """Begin to connect, if that has not been done; nobody waits for it."""
        if not self._connections and not self._closed:
            self._connections[H2Connection(self._address, self._roots, self._timing, self)] = 0

    async def close(self) -> None:
        """Close all connections; running calls end with UNAVAILABLE, but those that linger may end. Idempotent."""
        self._closed = True
        connections = [*self._connections, *self._leaving]
        # An engine whose stream is reset takes a request for cancelled, though it has answered.
        ending = [call.wait_over() for connection in connections for call in connection.calls if call.lingering]
        if ending:
            await asyncio.gather(*ending)
            connections = [*self._connections, *self._leaving]
        for connection in connections:
            connection.close("the connection was closed")
        for connection in connections:
            await connection.wait_closed()
        await self._unary.close()

    # -- told by connections

    def restart(self, call: H2Call[Any]) -> None:
        """Start ``call`` on the connection with the fewest calls, a new one when all are full."""
        if self._closed:
            call.fail(Status("UNAVAILABLE", "the transport is closed"))
            return
        best = next(iter(self._connections), None)
        if len(self._connections) > 1:
            best = min(self._connections, key=lambda connection: len(connection.calls))
        if best is None or (self._full(best) and len(self._connections) < _MAX_CONNECTIONS):
            best = H2Connection(self._address, self._roots, self._timing, self)
            self._connections[best] = 0
        best.open(call)
        if self._leaving:
            # It may have been the last one of another connection.
            self._leaving = {each for each in self._leaving if each.calls}

    def ended(self, connection: H2Connection, error: RpcError | None) -> None:
        if connection in self._connections:
            failed = error is not None and error.rpc == "UNAVAILABLE"
            failures = self._connections[connection] = self._connections[connection] + 1 if failed else 0
            if failures >= _UNAVAILABLE_LIMIT:
                self.leaving(connection, calm=False)
                connection.retire()
        if not connection.calls:
            self._leaving.discard(connection)

    def leaving(self, connection: H2Connection, *, calm: bool) -> None:
        self._connections.pop(connection, None)
        if connection.calls:
            self._leaving.add(connection)
        if calm:
            self._timing = self._timing.calmer()

    def _full(self, connection: H2Connection) -> bool:
        count = len(connection.calls)
        return count >= _STREAMS_PER_CONNECTION or count >= connection.native.max_streams

    def _headers(self, path: str, timeout: float | None, metadata: Mapping[str, str] | None) -> bytes:
        if self._closed:
            raise from_status("UNAVAILABLE", "the transport is closed")
        head = self._heads.get(path)
        if head is None:
            head = self._heads[path] = request_head(self._address.tls, self._address.target, path)
        return head + request_tail(timeout, metadata)
