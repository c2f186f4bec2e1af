"""One server-streaming call over grpc.aio, read by a pump that stops when nobody takes what it read.

grpc.aio hands out one message per await and cancels the whole call when such an await is cancelled. The pump in
between gives ``read`` both properties a ``Source`` needs: it returns all that has arrived, and giving up waiting for
it does no harm.

With ``feed_rows`` the plain chunks of a call go to rows of a table while ``read`` waits, and wake it only when they
have to (``smg._native.stream_feed``), so a token costs what grpc.aio takes and one native call.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import grpc.aio

from smg._native.inlet import Intake, Tokens
from smg._native.stream_feed import StreamFeed
from smg._native.wire import Layout
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.engines.transport.errors import RpcError, from_status
from smg.engines.transport.feeding import fed, feed_of, wake

Item = TypeVar("Item")

# What one call holds for a reader that does not come, besides its 256 KiB HTTP/2 window: the pump pauses as soon as
# either is reached, so the excess is one message.
READ_AHEAD_MESSAGES = 16
READ_AHEAD_BYTES = 256 << 10


def status_error(failure: grpc.aio.AioRpcError, *, established: bool) -> RpcError:
    """Map what grpc.aio raises for a status other than OK."""
    pairs: Any = failure.trailing_metadata() or ()
    trailers = {str(key): str(value) for key, value in pairs}
    return from_status(failure.code().name, failure.details() or "", trailers, established=established)


class GrpcioCall(Generic[Item]):
    """A ``Call`` (items are bytes) or a ``RowCall`` (with a ``layout``: bytes and Tokens).

    ``ended`` is called once, with the error the call ended with (None: OK or cancelled by us).
    """

    def __init__(self, call: Any, ended: Callable[[RpcError | None], None], layout: Layout | None = None) -> None:
        self._call = call
        self._on_end = ended
        self._layout = layout
        self._intake = Intake(layout)
        self._feed: StreamFeed | None = None
        # What tells of chunks that were fed.
        self._notes: list[Tokens] = []
        # Messages that wait for ``read``, and their bytes.
        self._waiting = 0
        self._held = 0
        self._established = False
        self._cancelled = False
        self._ended = False
        self._error: RpcError | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._pump = self._loop.create_task(self._run())
        # A pump that is cancelled before its first step never runs its own clean-up.
        self._pump.add_done_callback(lambda _: self._finish())

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """See ``RowCall``; for a call with a layout."""
        if self._ended or self._cancelled or self._layout is None:
            return False
        self._feed = feed_of(self._intake, table, rows) or self._feed
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
            if self._waiting or self._notes:
                items = [*self._notes, *self._intake.take()]
                self._notes.clear()
                self._waiting = self._held = 0
                wake(self._taken)
                return cast("list[Item]", items)
            if self._error is not None:
                raise self._error
            if self._ended:
                return []
            if self._arrived is None or self._arrived.done():
                self._arrived = self._loop.create_future()
            if self._feed is None:
                await self._arrived
            else:
                await fed(self._feed, self._arrived, self._notes)

    def cancel(self) -> None:
        if self._cancelled or self._ended:
            return
        self._cancelled = True
        self._intake.abandon()
        self._call.cancel()
        self._pump.cancel()
        wake(self._arrived)

    async def _run(self) -> None:
        push = self._intake.push
        try:
            async for message in self._call:
                self._established = True
                if push(message):
                    self._waiting += 1
                    self._held += len(message)
                    wake(self._arrived)
                    while self._waiting >= READ_AHEAD_MESSAGES or self._held >= READ_AHEAD_BYTES:
                        self._taken = self._loop.create_future()
                        await self._taken
        except grpc.aio.AioRpcError as failure:
            self._error = status_error(failure, established=self._established)
        except asyncio.CancelledError:
            if not self._cancelled:
                self._call.cancel()
                self._error = from_status("UNAVAILABLE", "the connection was closed", established=self._established)

    def _finish(self) -> None:
        self._ended = True
        if self._pump.cancelled():
            self._call.cancel()
            self._error = from_status("UNAVAILABLE", "the pump was cancelled")
        elif (failure := self._pump.exception()) is not None:
            self._call.cancel()
            self._error = from_status("INTERNAL", repr(failure), established=self._established)
        self._on_end(None if self._cancelled else self._error)
        wake(self._arrived)
