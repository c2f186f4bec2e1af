"""One generation on an engine core: batches in, one abort out (spec engine-contract 6.4).

Ids that come with nothing else go to an ``Intake``, and from there to the rows of a table, if they are fed (DESIGN 6,
the pump): a token is one native call then.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from smg._native.inlet import Intake, Tokens
from smg._native.stream_feed import StreamFeed
from smg.core import clock
from smg.core.backends import EngineRequest, RowSource
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.engines.source import cancelled_error
from smg.engines.transport.feeding import fed, feed_of, wake

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


class ZmqSource(RowSource):
    """The ``Source`` of one request's choices.

    An engine core sends all requests' tokens in one message, so nothing can hold back a single one: what a slow client
    has not taken waits here, and max_tokens bounds it. ``rank`` is the engine's rank that works on it.
    """

    def __init__(self, owner: Owner, ctx: RequestContext, request: EngineRequest, rank: int = 0) -> None:
        self.request = request
        self.rank = rank
        self._owner = owner
        self._open = set(range(request.n))
        # What has arrived: first what was fed, then ids alone, then batches with more.
        self._notes: list[Tokens] = []
        self._intake = Intake()
        self._batches: list[TokenBatch] = []
        self._feed: StreamFeed | None = None
        self._error: GatewayError | None = None
        self._over = False
        self._arrived: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        remaining = ctx.remaining()
        self._deadline = None if remaining is None else self._loop.call_later(remaining, self._stop, "deadline")
        self._silence = self._loop.call_later(SILENCE_SECS, self._check_silence)
        self._detach: Callable[[], None] = lambda: None
        self._detach = ctx.cancel.on_cancel(self._stop)

    async def next(self) -> list[TokenBatch]:
        while True:
            batches = self._collected()
            if batches:
                return batches
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

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """See ``core.backends.RowSource``."""
        if self._over:
            return False
        self._feed = feed_of(self._intake, table, rows) or self._feed
        return self._feed is not None

    def unsaid(self) -> list[TokenBatch]:
        """See ``core.backends.RowSource``."""
        batches = [_batch(tokens) for tokens in self._notes]
        self._notes.clear()
        return batches

    async def cancel(self, reason: str) -> None:
        self._stop(reason)

    def take(self, choice: int, ids: list[int], prompt_tokens: int, cached_tokens: int) -> bool:
        """Take ids that came with nothing but these counts; False: give them as a batch.

        Raises ValueError for ids that are none.
        """
        if self._batches:
            # They would come before what came earlier.
            return False
        if not self._over and choice in self._open and self._intake.push_ids(choice, ids, prompt_tokens, cached_tokens):
            wake(self._arrived)
        return True

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
        wake(self._arrived)

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
        self._intake.abandon()
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
        wake(self._arrived)

    def _collected(self) -> list[TokenBatch]:
        """Take out what has arrived."""
        tokens = [*self._notes, *cast("list[Tokens]", self._intake.take())]
        self._notes.clear()
        batches, self._batches = self._batches, []
        return [*map(_batch, tokens), *batches]


def _batch(tokens: Tokens) -> TokenBatch:
    return TokenBatch(
        index=tokens.index,
        ids=tokens.ids,
        prompt_tokens=tokens.prompt_tokens,
        cached_tokens=tokens.cached_tokens,
    )
