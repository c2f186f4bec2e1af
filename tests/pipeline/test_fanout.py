"""A request with several prompts: one generation each, one answer."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg.config.settings import AdmissionSettings, Settings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Failure, Finish, TextDelta, Usage
from smg.core.request import GenerationRequest, StopRules
from smg.core.stream import ByteTemplate, Counter
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.fanout import Fanout, generate
from smg.pipeline.generation import Generation
from tests.api.serving import until
from tests.pipeline.fakes import FOREVER, World, end, limited, text, world
from tests.tenants import limit, used

GONE = GatewayError("worker_failed", "the engine has gone", worker_fault=True)
BAD = GatewayError("invalid_request", "the engine does not like it")
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)


def request(prompts, **fields) -> GenerationRequest:
    return GenerationRequest("test", "m", prompts=prompts, separate_reasoning=False, **fields)


async def run(place: World, prompts, ctx: RequestContext | None = None, **fields) -> list:
    """Run to the end; returns the events of each pull."""
    generation = generate(place.services, ctx or RequestContext("r"), request(prompts, **fields))
    try:
        await generation.start()
        return [events async for events in generation]
    finally:
        await generation.aclose()


def script(word: str, **fields):
    return [[text(word)], [end(**fields)]]


async def test_one_prompt_needs_no_fan_out():
    place = world({"w1": [script("a")]})
    alone = GenerationRequest("test", "m", prompt_text="a")
    assert isinstance(generate(place.services, RequestContext("r"), alone), Generation)


async def test_choice_i_of_prompt_p_has_index_p_times_n_plus_i():
    both = [[text("x", 0), text("y", 1)], [end(1), end(0, "length")]]
    place = world({"w1": [both]})
    accumulator = Accumulator(6)
    for events in await run(place, ["one", "two", "three"], n=2):
        accumulator.feed(events)
    answer = accumulator.finish()
    assert [choice.text for choice in answer.choices] == ["x", "y"] * 3
    assert [choice.finish.reason for choice in answer.choices] == ["length", "stop"] * 3
    assert [choice.finish.choice for choice in answer.choices] == list(range(6))
    assert place.idle()


async def test_each_prompt_is_sent_by_itself_under_ids_of_its_own():
    place = world({"w1": [script("a")]})
    await run(place, [[1, 2], [3]])
    sent = [engine_request for _, engine_request in place.drivers.opened]
    assert [list(engine_request.ids) for engine_request in sent] == [[1, 2], [3]]
    assert len({engine_request.id for engine_request in sent}) == 2
    assert all(engine_request.id.startswith("r-") for engine_request in sent)


async def test_prompts_are_shared_out_over_the_workers():
    place = world({"w1": [script("a")], "w2": [script("b")]})
    await run(place, ["one", "two"])
    assert {worker for worker, _ in place.drivers.opened} == {"w1", "w2"}


async def test_usage_counts_every_prompt_once_and_tells_of_each():
    cached = [[text("ab", cached_tokens=1)], [end(cached_tokens=1)]]
    place = world({"w1": [cached]})
    pulls = await run(place, ["one", "four"], n=1)
    usage = pulls[-1][-1]
    assert isinstance(usage, Usage)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (7, 4, 2)
    assert [(part.prompt_tokens, part.completion_tokens) for part in usage.parts] == [(3, 2), (4, 2)]
    assert usage.part(1) == usage.parts[1]
    assert sum(isinstance(event, Usage) for events in pulls for event in events) == len(pulls)


async def test_a_prompt_that_is_ready_does_not_wait_for_the_others():
    place = world({"w1": [[[text("slow")], FOREVER], script("quick")]})
    generation = Fanout(place.services, RequestContext("r"), request(["one", "two"]))
    await generation.start()
    seen: list = []
    async with asyncio.timeout(5):
        while Finish(1, "stop") not in seen:
            seen += await anext(generation)
    assert TextDelta(0, "slow") in seen
    assert not generation.done
    await generation.aclose("client_disconnect")
    assert place.drivers.cancelled == ["client_disconnect"]
    assert place.idle()


class TestBeforeTheFirstByte:
    async def test_no_engine_hears_of_a_request_with_a_bad_prompt(self):
        place = world({"w1": [script("a")]})
        with pytest.raises(GatewayError) as caught:
            await run(place, [[1], [2], [3, 100_000]])
        assert (caught.value.status, caught.value.param) == (400, "prompt[2][1]")
        assert place.drivers.opened == []
        assert place.idle()

    async def test_a_prompt_that_is_too_long_is_refused_too(self):
        place = world({"w1": [script("a")]}, context_length=8)
        with pytest.raises(GatewayError) as caught:
            await run(place, ["a", "a b c d e f"])
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt[1]")
        assert place.drivers.opened == []

    async def test_all_prompts_are_one_admitted_request(self):
        place = world({"w1": [script("a")]}, limited(1))
        pulls = await run(place, ["one", "two", "three"])
        assert pulls[-1][-1].completion_tokens == 3
        assert place.idle()

    async def test_a_rule_for_their_model_holds_for_them(self):
        rule = AdmissionSettings(tenant_model_limit=("anonymous@m*=1/0",))
        place = world({"w1": [script("a")]}, Settings(admission=rule))
        await run(place, ["one", "two"])
        with pytest.raises(GatewayError) as caught:
            await run(place, ["one"])
        assert caught.value.code == "tenant_rate_limit_exceeded"
        assert place.metric("router_request_errors_total\0m\0") == 1

    async def test_all_prompts_are_one_request_of_their_tenant(self):
        place = world({"w1": [script("a")]})
        limit(place.services)
        usage = (await run(place, ["one", "two", "three"]))[-1][-1]
        assert used(place.services, "anonymous") == (1, usage.prompt_tokens + usage.completion_tokens)

    async def test_refused_admission_starts_nothing(self):
        place = world({"w1": [script("a")]}, limited(1))
        place.fleet.region.requests_add(1, 1)
        with pytest.raises(GatewayError) as caught:
            await run(place, ["one", "two"])
        assert caught.value.status == 429
        assert place.metric("router_request_errors_total\0m\0") == 1
        assert place.drivers.opened == []
        assert place.fleet.region.requests_total() == 1

    async def test_one_that_cannot_start_stops_the_others(self):
        place = world({"w1": [[FOREVER], BAD, [FOREVER]]})
        with pytest.raises(GatewayError) as caught:
            await run(place, ["one", "two", "three"])
        assert caught.value.code == "invalid_request"
        assert len(place.drivers.cancelled) == len(place.drivers.sources) >= 1
        assert place.idle()

    async def test_a_worker_that_fails_is_replaced_for_its_prompt_alone(self):
        place = world({"w1": [GONE], "w2": [script("b")]})
        pulls = await run(place, ["one", "two"])
        assert [event.choice for events in pulls for event in events if isinstance(event, Finish)] in ([0, 1], [1, 0])
        assert place.idle()

    async def test_a_client_that_leaves_while_engines_start(self):
        place = world({"w1": [[FOREVER]]})
        task = asyncio.create_task(run(place, ["one", "two"]))
        await until(lambda: len(place.drivers.sources) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert place.drivers.cancelled == ["client_disconnect"] * 2
        assert place.idle()


class TestAfterTheFirstByte:
    async def test_the_first_failure_is_the_last_event_and_the_others_are_stopped(self):
        place = world({"w1": [[[text("a")], FOREVER], [[text("b")], BROKEN]]})
        pulls = await run(place, ["one", "two"])
        assert isinstance(pulls[-1][-1], Failure)
        assert pulls[-1][-1].code == "worker_stream_failed"
        assert place.drivers.cancelled == ["error"]
        assert place.idle()

    async def test_the_deadline_ends_all(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        ctx = RequestContext("r")
        generation = Fanout(place.services, ctx, request(["one", "two"]))
        await generation.start()
        await anext(generation)
        ctx.cancel.cancel("deadline")
        async with asyncio.timeout(5):
            rest = [event async for events in generation for event in events]
        assert rest[-1].code == "deadline_exceeded"
        await generation.aclose()
        assert place.idle()

    async def test_closing_twice_is_closing_once(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        generation = Fanout(place.services, RequestContext("r"), request(["one", "two"]))
        await generation.start()
        await generation.aclose("client_disconnect")
        await generation.aclose("client_disconnect")
        assert place.drivers.cancelled == ["client_disconnect"] * 2
        assert place.idle()


async def test_direct_rows_write_their_own_choice():
    class Encoder:
        counter = Counter()

        def template(self, choice, kind="text", call=0):
            return ByteTemplate((b"%d:" % choice, b";"), ("text",))

    class Sink:
        written = b""

        def write(self, data):
            self.written += data
            return True

    place, sink = world({"w1": [script("a"), script("b")]}), Sink()
    generation = Fanout(place.services, RequestContext("r"), request(["one", "two"]))
    await generation.start()
    assert generation.direct(sink, Encoder())
    events = [event async for events in generation for event in events]
    await generation.aclose()
    assert sorted(sink.written.split(b";")) == [b"", b"0:a", b"1:b"]
    assert sorted(event.choice for event in events if isinstance(event, Finish)) == [0, 1]
    # Only the last one: before, nobody counts the ids of direct rows.
    assert [event.completion_tokens for event in events if isinstance(event, Usage)] == [2]
    assert place.idle()


@settings(max_examples=80, deadline=None)
@given(
    turns=st.integers(0, 40),
    script=st.sampled_from(
        [script("a"), [[text("a")], FOREVER], [0.0, GONE], [[text("a")], BROKEN], [[text("STOP")], FOREVER]]
    ),
    first=st.sampled_from([None, GONE, BAD]),
    why=st.sampled_from(["task", "deadline", "shutdown"]),
)
def test_cancelled_anywhere_nothing_leaks(turns, script, first, why):
    """After any number of loop turns, by the task or the context: what belongs to any of the prompts is let go."""

    async def main() -> None:
        scripts = {"w1": [*([first] if first else []), script], "w2": [script]}
        place, ctx = world(scripts), RequestContext("r")
        task = asyncio.create_task(run(place, ["one", "two", "three"], ctx, stop=StopRules(("STOP",))))
        for _ in range(turns):
            await asyncio.sleep(0)
        if why == "task":
            task.cancel()
        else:
            ctx.cancel.cancel(why)
        await asyncio.wait({task}, timeout=5)
        assert task.done()
        error = None if task.cancelled() else task.exception()
        assert error is None or isinstance(error, GatewayError)
        # Closing goes on behind a task that is cancelled while it closes.
        for _ in range(20):
            await asyncio.sleep(0)
        assert place.idle()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for source in place.drivers.sources:
            assert len(source.cancelled) <= 1

    asyncio.run(main())
