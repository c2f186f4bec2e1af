"""One generation on a gRPC engine: batches in, cancellation out (spec engine-contract 2.1, 2.6 and 4.3).

However it ends, it ends once: the engine's stream is reset at most once and at most one Abort follows.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from smg.core.backends import EngineRequest, RowSource
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.engines.base import Decoder
from smg.engines.decoding import check_ids
from smg.engines.parcel import INLINE, Parcel
from smg.engines.transport.base import Call, Item, TokenCall, feeds_rows
from smg.engines.transport.errors import of_contract

log = logging.getLogger("smg.engines")

_CANCELLED: dict[str, tuple[str, str]] = {
    "client_disconnect": ("client_disconnected", "the client has gone"),
    "deadline": ("deadline_exceeded", "the request took longer than it may"),
    "shutdown": ("shutting_down", "the gateway is shutting down"),
    "preempted": ("overloaded", "the request made way for one of higher priority"),
}


def cancelled_error(reason: str) -> GatewayError:
    """The error of a generation that was cancelled for ``reason`` (see ``core.context.Cancel``)."""
    code, message = _CANCELLED.get(reason, ("worker_stream_failed", "the generation was cancelled"))
    return GatewayError(code, message, detail=f"cancelled: {reason}")


class Owner(Protocol):
    """What a source needs of its driver."""

    def abort(self, request_id: str, reason: str) -> None:
        """Send one Abort RPC in the background; never raises."""
        ...

    def forget(self, source: "GrpcSource") -> None:
        """The source is over."""
        ...

    def background(self, call: Call | TokenCall) -> None:
        """Read the call to its end, bounded, without anybody waiting."""
        ...


class GrpcSource(RowSource):
    """The ``Source`` of one Generate stream of ``request.n`` choices.

    A TokenCall needs a decoder with ``plain``. ``parcel`` is dropped when the engine has read it or never will.
    """

    def __init__(
        self,
        owner: Owner,
        ctx: RequestContext,
        request: EngineRequest,
        call: Call | TokenCall,
        decoder: Decoder,
        parcel: Parcel = INLINE,
    ) -> None:
        self._owner = owner
        self._parcel = parcel
        self._id = request.id
        self._call = call
        self._decoder = decoder
        self._open = set(range(request.n))
        self._over = False
        self._cancelled: str | None = None
        self._error: GatewayError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._detach: Callable[[], None] = lambda: None
        remaining = None if ctx.timed else ctx.remaining()
        if remaining is not None:
            self._timer = asyncio.get_running_loop().call_later(remaining, self._stop, "deadline")
        self._detach = ctx.cancel.on_cancel(self._stop)

    async def next(self) -> list[TokenBatch]:
        while True:
            if self._cancelled is not None:
                if self._cancelled == "stop":
                    return []
                raise cancelled_error(self._cancelled)
            if self._error is not None:
                raise self._error
            if self._over:
                return []
            try:
                messages: Sequence[Item] = await self._call.read()
            except GatewayError as error:
                if self._cancelled is None:
                    self._end()
                    self._error = of_contract(error)
                continue
            batches = self._take(messages)
            if batches:
                return batches

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """See ``core.backends.RowSource``."""
        # A call that reads tokens is only made where all that chunks have is ids.
        return not self._over and feeds_rows(self._call) and self._call.feed_rows(table, rows)

    def unsaid(self) -> list[TokenBatch]:
        """See ``core.backends.RowSource``."""
        plain = self._decoder.plain
        return [plain(tokens) for tokens in self._call.unsaid()] if plain is not None and feeds_rows(self._call) else []

    async def cancel(self, reason: str) -> None:
        self._stop(reason)

    def _take(self, messages: Sequence[Item]) -> list[TokenBatch]:
        """Decode what arrived. A failure is kept for the next call when good batches came before it."""
        if not messages:
            # Every gRPC contract sends one Complete per choice (spec engine-contract 2.1, rule 4).
            self._fail("the engine's stream ended before the generation did", "status OK before the last Complete")
            return []
        batches: list[TokenBatch] = []
        for message in messages:
            try:
                decoded = self._decode(message)
            except ValueError as error:
                self._fail("the engine sent what is not an answer", str(error), abort=True)
                return batches
            for batch in decoded:
                if batch.index not in self._open:
                    log.debug("batch for a choice that is not running", extra={"request": self._id})
                    continue
                if batch.finish in ("abort", "error"):
                    self._fail("the engine gave up on the generation", f"finish reason {batch.finish}", abort=True)
                    return batches
                batches.append(batch)
                if batch.finish is not None:
                    self._open.discard(batch.index)
        if not self._open:
            self._owner.background(self._call)
            self._end()
        elif self._parcel is not INLINE and any(batch.ids for batch in batches):
            self._unpacked()
        return batches

    def _decode(self, item: Item) -> list[TokenBatch]:
        if isinstance(item, bytes):
            batches = self._decoder.decode(item)
        else:
            assert self._decoder.plain is not None
            batches = [self._decoder.plain(item)]
        for batch in batches:
            check_ids(batch.ids)
        return batches

    def _fail(self, message: str, detail: str, *, abort: bool = False) -> None:
        """End with ``worker_stream_failed``; ``abort`` when choices may still be running on the engine."""
        self._error = GatewayError("worker_stream_failed", message, detail=detail, worker_fault=True)
        if abort:
            self._call.cancel()
            self._owner.abort(self._id, "error")
        self._end()

    def _stop(self, reason: str) -> None:
        if self._over:
            return
        self._cancelled = reason
        self._call.cancel()
        self._owner.abort(self._id, reason)
        self._end()

    def _end(self) -> None:
        """Let go of timer, context and driver. What is still to be sent has been handed to the driver before."""
        self._over = True
        self._unpacked()
        if self._timer is not None:
            self._timer.cancel()
        self._detach()
        self._owner.forget(self)

    def _unpacked(self) -> None:
        """Whoever has begun to answer has read the prompt, and who will not answer reads nothing more."""
        self._parcel.drop()
        self._parcel = INLINE
