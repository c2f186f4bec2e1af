"""One generation on an engine core: batches in, one abort out (spec engine-contract 6.4)."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from smg.core import clock
from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.source import cancelled_error

# Silence of an engine with requests in flight after which it counts as dead, in seconds.
SILENCE_SECS = 300.0


class Owner(Protocol):
    """What a source needs of its driver; ``last_heard`` is a reading of the monotonic clock."""

    last_heard: float

    def abort(self, source: "ZmqSource", choices: list[int]) -> None:
        """Tell the engine; never raises."""
        ...

    def forget(self, source: "ZmqSource") -> None:
        """The source is over."""
        ...


class ZmqSource:
    """The ``Source`` of one request's choices.

    An engine core sends all requests' tokens in one message, so nothing can hold back a single one: what a slow client
    has not taken waits here, and max_tokens bounds it. ``rank`` is the engine's rank that works on it.
    """

    def __init__(self, owner: Owner, ctx: RequestContext, request: EngineRequest, rank: int = 0) -> None:
        self.request = request
        self.rank = rank
        self._owner = owner
        self._open = set(range(request.n))
        self._batches: list[TokenBatch] = []
        self._error: GatewayError | None = None
        self._over = False
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        remaining = ctx.remaining()
        self._deadline = None if remaining is None else self._loop.call_later(remaining, self._stop, "deadline")
        self._silence = self._loop.call_later(SILENCE_SECS, self._check_silence)
        self._detach: Callable[[], None] = lambda: None
        self._detach = ctx.cancel.on_cancel(self._stop)

    async def next(self) -> list[TokenBatch]:
        while True:
            if self._batches:
                batches, self._batches = self._batches, []
                return batches
            if self._error is not None:
                raise self._error
            if self._over:
                return []
            self._wake.clear()
            await self._wake.wait()

    async def cancel(self, reason: str) -> None:
        self._stop(reason)

    def put(self, batch: TokenBatch) -> None:
        """Take a batch of the engine's."""
        if self._over or batch.index not in self._open:
            return
        if batch.finish in ("abort", "error"):
            self._open.discard(batch.index)
            message = "the engine gave up on the generation"
            detail = f"finish reason {batch.finish}"
            self.fail(GatewayError("worker_stream_failed", message, detail=detail, worker_fault=True))
            return
        self._batches.append(batch)
        if batch.finish is not None:
            self._open.discard(batch.index)
            if not self._open:
                self._end()
        self._wake.set()

    def fail(self, error: GatewayError) -> None:
        """End with ``error``, after what has arrived; choices that still run are aborted."""
        if self._over:
            return
        self._error = error
        if self._open:
            self._owner.abort(self, sorted(self._open))
        self._end()

    def _stop(self, reason: str) -> None:
        if self._over:
            return
        self._batches.clear()
        if reason != "stop":
            self._error = cancelled_error(reason)
        self._owner.abort(self, sorted(self._open))
        self._end()

    def _check_silence(self) -> None:
        due = self._owner.last_heard + SILENCE_SECS - clock.monotonic()
        if due > 0:
            self._silence = self._loop.call_later(due, self._check_silence)
            return
        message = "the engine did not answer in time"
        self.fail(GatewayError("upstream_timeout", message, detail="silent with requests in flight", worker_fault=True))

    def _end(self) -> None:
        self._over = True
        self._silence.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        self._detach()
        self._owner.forget(self)
        self._wake.set()
