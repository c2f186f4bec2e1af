"""One server-streaming call over grpc.aio, read by a pump that stops when nobody takes what it read.

grpc.aio hands out one message per await and cancels the whole call when such an await is cancelled. The pump in
between gives ``read`` both properties a ``Source`` needs: it returns all that has arrived, and giving up waiting for
it does no harm.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio

from smg.core.errors import GatewayError
from smg.engines.transport.errors import RpcError, from_status

# What one call holds for a reader that does not come, besides its 256 KiB HTTP/2 window: the pump pauses as soon as
# either is reached, so the excess is one message.
READ_AHEAD_MESSAGES = 16
READ_AHEAD_BYTES = 256 << 10


def status_error(failure: grpc.aio.AioRpcError, *, established: bool) -> RpcError:
    """Map what grpc.aio raises for a status other than OK."""
    pairs: Any = failure.trailing_metadata() or ()
    trailers = {str(key): str(value) for key, value in pairs}
    return from_status(failure.code().name, failure.details() or "", trailers, established=established)


class GrpcioCall:
    """A ``Call``. ``ended`` is called once, with the error the call ended with (None: OK or cancelled by us)."""

    def __init__(self, call: Any, ended: Callable[[RpcError | None], None]) -> None:
        self._call = call
        self._on_end = ended
        self._messages: list[bytes] = []
        self._held = 0  # bytes in _messages
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

    async def read(self) -> list[bytes]:
        while not self._messages:
            if self._cancelled:
                raise GatewayError("client_disconnected", "the generation was cancelled")
            if self._error is not None:
                raise self._error
            if self._ended:
                return []
            if self._arrived is None or self._arrived.done():
                self._arrived = self._loop.create_future()
            await self._arrived
        messages, self._messages, self._held = self._messages, [], 0
        _wake(self._taken)
        return messages

    def cancel(self) -> None:
        if self._cancelled or self._ended:
            return
        self._cancelled = True
        self._messages.clear()
        self._call.cancel()
        self._pump.cancel()
        _wake(self._arrived)

    async def _run(self) -> None:
        try:
            async for message in self._call:
                self._established = True
                self._messages.append(message)
                self._held += len(message)
                _wake(self._arrived)
                while len(self._messages) >= READ_AHEAD_MESSAGES or self._held >= READ_AHEAD_BYTES:
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
        _wake(self._arrived)


def _wake(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)
