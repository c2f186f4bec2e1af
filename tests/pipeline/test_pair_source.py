"""Two engines' streams as one: who is to blame, and what the prefill engine adds (spec engine-contract 5.1)."""

import asyncio

import pytest

from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.source import cancelled_error
from smg.engines.transport.errors import from_status
from smg.pipeline.pair_source import PairSource
from smg.routing.pairing import PartnerFailed
from tests.pipeline.fakes import FOREVER, FakeSource, end, text

# A connection that broke cannot be the partner's doing, nor can a refusal; a transfer that failed can.
BROKE = from_status("UNAVAILABLE", "connection reset")
BUSY = from_status("RESOURCE_EXHAUSTED", "the queue is full")
COMPLAINS = from_status("INTERNAL", "the transfer failed")
ANSWER = [[text("a")], [end()], []]
DONE = [[text("x")], [end(reason="length")], []]


class Stoppable(FakeSource):
    """As a driver's source: one that is cancelled fails instead of going on."""

    def __init__(self, steps):
        super().__init__(steps)
        self._stop = asyncio.Event()

    async def next(self):
        going, stop = asyncio.ensure_future(super().next()), asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({going, stop}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                raise cancelled_error(self.cancelled[0])
            return going.result()
        finally:
            going.cancel()
            stop.cancel()

    async def cancel(self, reason):
        await super().cancel(reason)
        self._stop.set()


class Pair:
    """A PairSource over scripted engines, and what came of it."""

    def __init__(self, prefill, decode, *, patience=10.0, wants_prompt=False):
        self.ctx = RequestContext("r")
        self.prefill, self.decode = Stoppable(prefill), Stoppable(decode)
        self.ends = []
        self.source = PairSource(
            self.ctx, self.prefill, self.decode, "p1", self.ends.append, patience=patience, wants_prompt=wants_prompt
        )

    async def run(self):
        """Everything up to the end, or the error."""
        batches = []
        try:
            while fresh := await self.source.next():
                batches += fresh
        except GatewayError as error:
            return error
        return batches


def sides(*steps):
    """Both engines' failures in this order, 10 ms apart: (script of prefill, script of decode)."""
    scripts = {"prefill": [FOREVER], "decode": [FOREVER]}
    for place, (leg, error) in enumerate(steps):
        scripts[leg] = [0.01 * (place + 1), error]
    return scripts["prefill"], scripts["decode"]


@pytest.mark.parametrize(
    ("steps", "blamed"),
    [
        ([("prefill", BROKE)], "prefill"),
        ([("prefill", COMPLAINS)], "prefill"),
        ([("decode", BROKE)], "decode"),
        ([("decode", COMPLAINS)], "decode"),
        ([("decode", COMPLAINS), ("prefill", BROKE)], "prefill"),
        ([("prefill", COMPLAINS), ("decode", BROKE)], "decode"),
        ([("prefill", COMPLAINS), ("decode", COMPLAINS)], "prefill"),
        ([("decode", COMPLAINS), ("prefill", COMPLAINS)], "decode"),
        ([("prefill", BROKE), ("decode", BROKE)], "prefill"),
        ([("decode", COMPLAINS), ("prefill", BUSY)], "prefill"),
        ([("prefill", COMPLAINS), ("decode", BUSY)], "decode"),
        ([("prefill", BUSY), ("decode", BROKE)], "decode"),
    ],
)
async def test_who_is_to_blame(steps, blamed):
    pair = Pair(*sides(*steps))
    error = await pair.run()
    await asyncio.sleep(0)
    if blamed == "prefill":
        assert isinstance(error, PartnerFailed)
        assert error.worker == "p1"
        assert pair.ends == [error.cause] == [dict(steps)["prefill"]]
        assert pair.decode.cancelled
    else:
        assert error is dict(steps)["decode"]
        assert pair.ends == []
        assert pair.prefill.cancelled


async def test_the_answer_is_the_decode_engines_and_prefill_is_over_once():
    pair = Pair(DONE, ANSWER)
    assert await pair.run() == [text("a"), end()]
    await asyncio.sleep(0)
    assert pair.ends == [None]
    assert pair.prefill.cancelled == pair.decode.cancelled == []


async def test_the_better_count_of_cached_tokens_wins():
    pair = Pair([[text("x", cached_tokens=8)], []], [0.01, [text("a", cached_tokens=3)], [end(cached_tokens=9)], []])
    assert [batch.cached_tokens for batch in await pair.run()] == [8, 9]


@pytest.mark.parametrize("late", [[], [0.05]])
async def test_the_prompts_rows_are_the_prefill_engines_however_late(late):
    rows, other = [TokenLogprobs(1, -0.5)], [TokenLogprobs(2, -0.7)]
    pair = Pair(
        [*late, [text("x", prompt_logprobs=rows)], []],
        [0.01, [text("a", prompt_logprobs=other)], [end()], []],
        wants_prompt=True,
    )
    batches = await pair.run()
    assert batches[-1].prompt_logprobs == rows
    assert all(batch.prompt_logprobs in (None, rows) for batch in batches)


async def test_a_prefill_engine_that_fails_after_the_first_token_is_booked_and_the_answer_goes_on():
    pair = Pair([0.02, BROKE], [[text("a")], 0.04, [text("b")], [end()], []])
    assert await pair.run() == [text("a"), text("b"), end()]
    assert pair.ends == [BROKE]
    assert pair.decode.cancelled == []


async def test_but_not_while_something_only_it_can_tell_is_missing():
    pair = Pair([0.02, BROKE], [[text("a")], [end()], []], wants_prompt=True)
    assert isinstance(await pair.run(), PartnerFailed)


async def test_too_slow():
    pair = Pair([0.05, BROKE], [FOREVER], patience=0.01)
    error = await pair.run()
    assert isinstance(error, PartnerFailed)
    assert (error.status, error.cause.worker_fault) == (504, True)
    assert pair.prefill.cancelled == ["deadline"]


async def test_cancel_stops_both_and_blames_nobody():
    pair = Pair([FOREVER], [FOREVER])
    await pair.source.cancel("client_disconnect")
    await pair.source.cancel("client_disconnect")
    assert pair.prefill.cancelled[0] == pair.decode.cancelled[0] == "client_disconnect"
    assert pair.ends == []


async def test_a_failure_of_a_cancelled_request_is_nobodys():
    pair = Pair([0.02, BROKE], [0.01, COMPLAINS])
    pair.ctx.cancel.cancel("client_disconnect")
    assert await pair.run() is COMPLAINS
    await asyncio.sleep(0.05)
    assert pair.ends == []


async def test_a_third_engine_that_fails_stops_both():
    pair = Pair([FOREVER], [FOREVER])
    error = PartnerFailed(BROKE, "e1", "encode")
    asyncio.get_running_loop().call_later(0.01, pair.source.fail, error)
    assert await pair.run() is error
    await asyncio.sleep(0)
    assert pair.prefill.cancelled
    assert pair.decode.cancelled
    assert pair.ends == []


async def test_a_third_engine_is_not_needed_any_more_once_the_answer_has_begun():
    pair = Pair(DONE, [[text("a")], 0.02, [end()], []])
    asyncio.get_running_loop().call_later(0.01, pair.source.fail, PartnerFailed(BROKE, "e1", "encode"))
    assert await pair.run() == [text("a"), end()]
