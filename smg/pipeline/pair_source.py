"""A generation on two engines at once: one computes the prompt, the other's tokens are the answer (spec
engine-contract 5.1).

Both are read all the time, so that neither one's failure waits for the other, and only who is to blame gets the blame.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from smg.core.backends import RowSource, Source, feeds_rows
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.pipeline.blame import VERDICT_SECS, blamed, gone, too_late
from smg.routing.pairing import PartnerFailed

# What a prefill engine may take to end its stream, in seconds, after the answer is whole.
_LATE_SECS = 2.0

Ended: TypeAlias = Callable[[GatewayError | None], None]


class PairSource(RowSource):
    """The ``Source`` of a pair whose prefill worker has the id ``worker``.

    ``ended`` is called when the prefill engine has done its work (None) or is to blame for a failure; not when it was
    stopped. It may take ``patience`` seconds. ``over`` is called when its stream is over, for whatever reason. With
    ``wants_prompt`` the prompt's log probabilities are its own.
    """

    def __init__(
        self,
        ctx: RequestContext,
        prefill: Source,
        decode: Source,
        worker: str,
        ended: Ended,
        *,
        patience: float,
        wants_prompt: bool = False,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        self._ctx = ctx
        self._prefill = prefill
        self._decode = decode
        self._worker = worker
        self._ended = ended
        self._over = over
        self._wants_prompt = wants_prompt
        self._prompt: list[TokenLogprobs] | None = None
        self._cached = 0
        self._begun = False
        self._stopped = False
        self._broken: PartnerFailed | None = None
        # By leg, in the order they came.
        self._failures: dict[str, GatewayError] = {}
        self._other_failed = asyncio.Event()
        self._timer = asyncio.get_running_loop().call_later(patience, self._late, patience)
        self._draining = _spawn(self._drain())

    async def next(self) -> list[TokenBatch]:
        """See ``Source.next``. Raises PartnerFailed when the prefill engine is to blame."""
        try:
            batches = await self._decode.next()
        except GatewayError as error:
            raise await self._judged(error) from None
        if self._wants_prompt and self._prompt is None and any(batch.finish for batch in batches):
            # The answer must not end before what only the prefill engine can tell.
            await asyncio.wait({self._draining})
            if (verdict := self._verdict()) is not None:
                raise verdict
        for batch in batches:
            self._begun = self._begun or bool(batch.ids or batch.finish)
            batch.cached_tokens = max(batch.cached_tokens, self._cached)
            if self._wants_prompt:
                batch.prompt_logprobs = self._prompt
        if not batches and not self._draining.done():
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_LATE_SECS, self._leave)
        return batches

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """See ``core.backends.RowSource``."""
        return feeds_rows(self._decode) and self._decode.feed_rows(table, rows)

    def unsaid(self) -> list[TokenBatch]:
        """See ``core.backends.RowSource``."""
        return self._decode.unsaid() if feeds_rows(self._decode) else []

    async def cancel(self, reason: str) -> None:
        """Stop both engines. Idempotent, never raises."""
        self._stopped = True
        await self._prefill.cancel(reason)
        await self._decode.cancel(reason)

    def fail(self, error: PartnerFailed) -> None:
        """A third engine has failed without which the prompt cannot be computed: stop both, unless they have it."""
        if not self._begun and not self._stopped:
            self._broken = error
            self._other_failed.set()
            _spawn(self.cancel("error"))

    async def _drain(self) -> None:
        """Read the prefill engine to its end."""
        try:
            while batches := await self._prefill.next():
                for batch in batches:
                    self._prompt = self._prompt or batch.prompt_logprobs
                    self._cached = max(self._cached, batch.cached_tokens)
            if not self._stopped:
                self._ended(None)
        except GatewayError as error:
            await self._prefill_failed(error)
        finally:
            self._timer.cancel()
            self._over()

    async def _prefill_failed(self, error: GatewayError) -> None:
        if self._ctx.cancel or self._stopped:
            return
        error = self._failures.setdefault("prefill", error)
        if self._needed and not gone(error):
            await _at_most(VERDICT_SECS, self._other_failed.wait())
        if self._broken is not None or blamed(self._failures) != "prefill":
            return
        self._ended(error)
        if self._needed:
            # Without the prompt's cache the other engine waits for nothing.
            self._stopped = True
            await self._decode.cancel("error")

    @property
    def _needed(self) -> bool:
        """Whether the answer still depends on the prefill engine. A first token proves that it has handed over."""
        return not self._begun or (self._wants_prompt and self._prompt is None)

    async def _judged(self, error: GatewayError) -> GatewayError:
        """The error to raise when the decode engine's stream has failed with ``error``."""
        if self._ctx.cancel:
            return error
        if not self._stopped:
            self._failures["decode"] = error
            self._other_failed.set()
            if self._needed and not gone(error):
                await asyncio.wait({self._draining}, timeout=VERDICT_SECS)
            self._stopped = True
            await self._prefill.cancel("error")
        return self._verdict() or error

    def _verdict(self) -> GatewayError | None:
        if self._broken is not None:
            return self._broken
        if self._needed and blamed(self._failures) == "prefill":
            return PartnerFailed(self._failures["prefill"], self._worker)
        return None

    def _late(self, patience: float) -> None:
        self._failures.setdefault("prefill", too_late(patience))
        _spawn(self._prefill.cancel("deadline"))

    def _leave(self) -> None:
        self._stopped = True
        _spawn(self._prefill.cancel("stop"))


async def _at_most(seconds: float, waiting: Coroutine[Any, Any, object]) -> None:
    task = _spawn(waiting)
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()


# The loop itself does not hold tasks.
_running: set[asyncio.Task[Any]] = set()


def _spawn(work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
