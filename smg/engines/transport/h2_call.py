"""One server-streaming call over the native HTTP/2 connection.

The connection collects a call's messages natively and wakes it once per readable batch; ``read`` takes them all. The
engine is granted no more until ``read`` is called again (the stream's window goes back then), so a reader that does not
come stalls its own stream and no other.

With ``feed_rows`` the plain chunks of a call go to rows of a table while ``read`` waits, and wake it only when they
have to (``smg._native.stream_feed``).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from smg._native.grpc_stream import Stream
from smg._native.h2 import Connection
from smg._native.inlet import Tokens
from smg._native.stream_feed import StreamFeed
from smg._native.wire import Layout
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.engines.transport.errors import RpcError
from smg.engines.transport.feeding import fed, feed_of, wake
from smg.engines.transport.h2_headers import Headers, Status, reset_status

Item = TypeVar("Item")

# What gRPC's frames have room for.
_UINT32_MAX = 2**32 - 1
# The HTTP/2 error of a stream that nobody has looked at (RFC 9113, 8.7).
_REFUSED_STREAM = 7


class Carrier(Protocol):
    """What a call needs of the connection it runs on."""

    native: Connection

    def flush_soon(self) -> None: ...

    def refused(self, call: "H2Call[Any]", status: Status) -> None:
        """The engine has turned the call's stream away without looking at it: start it again, or end it so."""
        ...

    def ended(self, call: "H2Call[Any]", error: RpcError | None) -> None:
        """The call is over (None: OK, or cancelled by us)."""
        ...


class H2Call(Generic[Item]):
    """A ``Call`` (items are bytes) or a ``TokenCall`` (with a ``layout``: bytes and Tokens).

    ``timeout`` is in seconds, ``largest`` the size limit of a message in bytes. Dispatched by ``start``, again on
    another connection when the first never opened it.
    """

    def __init__(
        self, headers: bytes, message: bytes, timeout: float | None, *, layout: Layout | None, largest: int
    ) -> None:
        self.lingering = False
        self._request: tuple[bytes, bytes] | None = (headers, message)
        self._layout = layout
        self._largest = largest if largest < _UINT32_MAX else _UINT32_MAX
        self._carrier: Carrier
        self._stream: Stream
        self._answered = False
        self._early: Status | None = None
        self._moved = False
        self._cancelled = False
        self._over = False
        self._error: RpcError | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._feed: StreamFeed | None = None
        # What tells of chunks that were fed.
        self._notes: list[Tokens] = []
        self._loop = asyncio.get_running_loop()
        self._timer = None if timeout is None else self._loop.call_later(timeout, self._expire)

    def may_move(self, *, progress: bool) -> bool:
        """Whether a call that no engine has seen may be started again.

        That costs no attempt on a worker (the "transparent retries" of gRPC). Without ``progress``, when no other call
        got further either, it is so once: who turns everything away would be asked forever.
        """
        if self._over or self._request is None or (self._moved and not progress):
            return False
        self._moved = self._moved or not progress
        return True

    def start(self, carrier: Carrier) -> None:
        """Run on ``carrier``. Only for a call whose request no engine has seen."""
        assert self._request is not None
        self._carrier = carrier
        self._stream = Stream(self, *self._request, self._layout, self._largest)
        carrier.native.open(self._stream)
        carrier.flush_soon()

    def leave(self) -> None:
        """Off the connection, to be started again."""
        self._carrier.native.drop(self._stream)
        self._carrier.flush_soon()

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """See ``RowCall``; for a call with a layout that was answered."""
        if self._over or self._layout is None or not self._answered:
            return False
        self._feed = feed_of(self._stream, table, rows) or self._feed
        return self._feed is not None

    def unsaid(self) -> list[Tokens]:
        """See ``RowCall``."""
        notes = self._notes[:]
        self._notes.clear()
        return notes

    async def read(self) -> list[Item]:
        while True:
            if self._cancelled:
                raise GatewayError("client_disconnected", "the generation was cancelled")
            items = [*self._notes, *self._carrier.native.take(self._stream)]
            self._notes.clear()
            self._carrier.flush_soon()
            if items:
                return cast("list[Item]", items)
            if self._error is not None:
                raise self._error
            if self._over:
                return []
            if self._arrived is None or self._arrived.done():
                self._arrived = self._loop.create_future()
            if self._feed is None:
                await self._arrived
            else:
                await fed(self._feed, self._arrived, self._notes)

    def cancel(self) -> None:
        if self._over:
            return
        self._cancelled = True
        self._end(None)
        self._stream.abandon()

    def linger(self, seconds: float) -> None:
        """See ``LingeringCall``."""
        self.lingering = True
        if not self._over and self._timer is None:
            self._timer = self._loop.call_later(seconds, self.cancel)

    async def wait_over(self) -> None:
        """Wait until the call is over, which one that lingers soon is."""
        while not self._over:
            if self._arrived is None or self._arrived.done():
                self._arrived = self._loop.create_future()
            await self._arrived

    # -- told by the connection

    def on_headers(self, headers: Headers, end: bool) -> None:
        """Headers or trailers of the answer."""
        if self._over:
            return
        self._request = None
        if not self._answered:
            if headers.informational and not end:
                return
            self._answered = True
            status = None if headers.begins and not end else headers.refusal(end=end)
            if status is not None:
                # What came with it, if anything, is no message: an error page, say.
                self._end(status.error(established=False))
                self._stream.abandon()
            else:
                self._early = headers.early
            return
        status = headers.status if end else Status("INTERNAL", "headers in the middle of the answer")
        if status.name == "OK" and self._stream.cut:
            status = Status("INTERNAL", "the last message was cut off")
        self._finish(status)

    def on_ready(self) -> None:
        """Messages have arrived, or the stream has ended without trailers."""
        if not self._over and self._stream.closed:
            failure = self._stream.error
            if failure is None:
                early = None if self._stream.messages or self._stream.cut else self._early
                self._finish(early or Status("UNKNOWN", "the stream ended without a status"))
            elif failure[0] == _REFUSED_STREAM:
                self._carrier.refused(self, reset_status(*failure))
            else:
                self._finish(reset_status(*failure))
        wake(self._arrived)

    def fail(self, status: Status) -> None:
        """The connection cannot go on with this call."""
        if not self._over:
            self._finish(status)

    # -- the end

    def _expire(self) -> None:
        self.fail(Status("DEADLINE_EXCEEDED", "the deadline of the call"))

    def _finish(self, status: Status) -> None:
        self._end(status.error(established=self._stream.messages > 0))

    def _end(self, error: RpcError | None) -> None:
        self._over = True
        self._error = error
        self._request = None
        if self._timer is not None:
            self._timer.cancel()
        self._carrier.native.drop(self._stream)
        self._carrier.flush_soon()
        self._carrier.ended(self, error)
        wake(self._arrived)
