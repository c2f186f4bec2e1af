"""The life of a generation: what the client gets, what the engine is told, and that nothing leaks."""

import asyncio
from concurrent.futures import Future

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.region import FAILURES
from smg.config.settings import ModelSettings, RoutingSettings, Settings
from smg.core import clock
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import (
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from smg.core.request import (
    GenerationRequest,
    Limits,
    Logprobs,
    MediaPart,
    Message,
    Sampling,
    StopRules,
    Tool,
    ToolChoice,
)
from smg.core.stream import ByteTemplate, Counter, RowSpec
from smg.engine_server.mock import tokenizer as mock
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.reasoning.delimiters import factory
from smg.parsing.reasoning.families import PLAIN
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.choice import Choice
from smg.pipeline.generation import Generation
from smg.pipeline.stops import Stops
from smg.text.tables import make_table
from tests.api.serving import until
from tests.pipeline.fakes import EOS, FOREVER, SETTINGS, World, end, limited, text, text_model, world

GONE = GatewayError("worker_failed", "the engine has gone", worker_fault=True)
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
BAD = GatewayError("invalid_request", "the engine does not like it")
ONE_LINE = [[text("hello")], [text(" world"), end()]]


def request(**fields) -> GenerationRequest:
    return GenerationRequest("test", fields.pop("model", "m"), messages=[Message("user", "hi")], **fields)


def context(**fields) -> RequestContext:
    return RequestContext("r", endpoint="/t", **fields)


async def run(place: World, ctx: RequestContext | None = None, **fields) -> list:
    """Run a generation to its end; returns the events of each pull."""
    generation = Generation(place.services, ctx or context(), request(**fields))
    try:
        await generation.start()
        return [events async for events in generation]
    finally:
        await generation.aclose()


async def answer(place: World, **fields):
    accumulator = Accumulator(fields.get("n", 1))
    for events in await run(place, **fields):
        accumulator.feed(events)
    return accumulator.finish()


def flat(pulls) -> list:
    return [event for events in pulls for event in events if not isinstance(event, Usage)]


class TestWholeAnswers:
    async def test_text_then_finish_then_usage(self):
        place = world({"w1": [ONE_LINE]})
        pulls = await run(place)
        assert flat(pulls) == [TextDelta(0, "hello"), TextDelta(0, " world"), Finish(0, "stop")]
        usage = pulls[-1][-1]
        assert (usage.prompt_tokens, usage.completion_tokens) == (len(place.drivers.opened[0][1].ids), 6)
        assert place.drivers.cancelled == []
        assert place.idle()

    async def test_a_pull_of_several_batches_is_one_list_of_events(self):
        place = world({"w1": [[[text("a"), text("b"), end(reason="length")]]]})
        (events,) = await run(place)
        assert events[:-1] == [TextDelta(0, "a"), TextDelta(0, "b"), Finish(0, "length")]

    async def test_OA_01_each_choice_finishes_once_for_its_own_reason(self):
        steps = [[text("a", 0)], [text("b", 1)], [end(1)], [text("c", 0), end(0, "length")]]
        done = await answer(world({"w1": [steps]}), n=2)
        assert [(choice.text, choice.finish.reason) for choice in done.choices] == [("ac", "length"), ("b", "stop")]

    async def test_OA_02_a_clean_end_without_a_reason_is_a_stop(self):
        assert (await answer(world({"w1": [[[text("a")]]]}))).choices[0].finish == Finish(0, "stop")

    @pytest.mark.parametrize(("early", "late"), [(4, 2), (0, 4)])
    async def test_the_prompt_is_counted_once_and_outputs_are_summed(self, early, late):
        steps = [[text("aaa", 0, cached_tokens=early), text("bb", 1)], [end(0), end(1, cached_tokens=late)]]
        place = world({"w1": [steps]})
        usage = (await answer(place, n=2)).usage
        assert usage == Usage(len(place.drivers.opened[0][1].ids), 5, cached_tokens=4)

    async def test_running_usage_grows(self):
        pulls = await run(world({"w1": [[[text("ab")], [text("c")], [end()]]]}))
        assert [events[-1].completion_tokens for events in pulls] == [2, 3, 3]

    async def test_engine_counts_of_reasoning_and_speculation_are_passed_on(self):
        steps = [
            [text("a", reasoning_tokens=1)],
            [end(reasoning_tokens=2, spec_draft_tokens=4, spec_accepted_tokens=3)],
        ]
        usage = (await answer(world({"w1": [steps]}))).usage
        assert (usage.reasoning_tokens, usage.spec_draft_tokens, usage.spec_accepted_tokens) == (2, 4, 3)

    async def test_logprobs_reach_the_events_one_per_token(self):
        rows = [TokenLogprobs(token, -0.5) for token in b"ab"]
        steps = [[TokenBatch(0, [*b"ab"], logprobs=rows)], [end()]]
        assert (await answer(world({"w1": [steps]}), logprobs=Logprobs(1))).choices[0].logprobs == rows

    async def test_reasoning_is_taken_apart_for_a_model_that_reasons(self):
        steps = [[text("<think>hm")], [text("</think>yes"), end()]]
        events = flat(await run(world({"w1": [steps]}, model="qwen3"), model="qwen3"))
        assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "hm"
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "yes"

    async def test_an_empty_answer_is_an_answer(self):
        done = await answer(world({"w1": [[[TokenBatch(0, [EOS], finish="stop")]]]}))
        assert (done.choices[0].text, done.choices[0].finish, done.usage.completion_tokens) == (
            "",
            Finish(0, "stop"),
            1,
        )


class TestStops:
    async def test_TX_07_the_engine_is_stopped_once_after_the_last_choice(self):
        steps = [
            [text("one", 0)],
            [text("two", 1)],
            [text("\n\nxx", 0)],
            [text(" three", 1)],
            [text("\n\nyy", 1)],
            [text("never read", 1)],
        ]
        place = world({"w1": [steps]})
        done = await answer(place, n=2, stop=StopRules(("\n\n",)))
        assert [(choice.text, choice.finish) for choice in done.choices] == [
            ("one", Finish(0, "stop", "\n\n")),
            ("two three", Finish(1, "stop", "\n\n")),
        ]
        assert done.usage.completion_tokens == len(b"one\n\n") + len(b"two") + 1 + len(b" three") - 6 + 6 + 2 - 1
        assert place.drivers.cancelled == ["stop"]
        assert place.drivers.sources[0].pulls == 5
        assert place.idle()

    async def test_a_stopped_choice_takes_nothing_more_while_others_run(self):
        steps = [[text("a.", 0)], [text("zzz", 0), text("b", 1)], [end(1), end(0, "length")]]
        done = await answer(world({"w1": [steps]}), n=2, stop=StopRules((".x", ".")))
        assert [choice.text for choice in done.choices] == ["a", "b"]
        assert done.usage.completion_tokens == 3

    async def test_TX_07_an_end_the_engine_knows_itself_causes_no_abort(self):
        steps = [[TokenBatch(0, [*b"hi", EOS])], [end(matched_stop=EOS)]]
        place = world({"w1": [steps]})
        done = await answer(place)
        assert done.choices[0].text == "hi"
        assert done.choices[0].finish == Finish(0, "stop")
        assert place.drivers.cancelled == []

    async def test_an_engine_that_runs_past_the_end_token_is_stopped(self):
        place = world({"w1": [[[TokenBatch(0, [*b"hi", EOS])], [text("more")], [text("and more")], FOREVER]]})
        done = await answer(place)
        assert (done.choices[0].text, done.usage.completion_tokens) == ("hi", 3)
        assert place.drivers.cancelled == ["stop"]

    async def test_a_client_s_stop_id_is_reported(self):
        steps = [[TokenBatch(0, [*b"hi", ord("!")])], [end(matched_stop=ord("!"))]]
        place = world({"w1": [steps]})
        done = await answer(place, stop=StopRules(ids=(ord("!"),)))
        assert (done.choices[0].text, done.choices[0].finish) == ("hi", Finish(0, "stop", ord("!")))
        assert place.drivers.opened[0][1].stop_ids == (ord("!"),)
        assert place.drivers.cancelled == []

    async def test_TX_08_stop_strings_stay_here_but_a_single_token_is_sent_as_an_id(self):
        place = world({"w1": [[[text("hi.")], [end(matched_stop=ord("."))]]]})
        done = await answer(place, stop=StopRules((".", "##")))
        assert (done.choices[0].text, done.choices[0].finish) == ("hi", Finish(0, "stop", "."))
        assert place.drivers.opened[0][1].stop_ids == (ord("."),)
        assert place.drivers.cancelled == []

    async def test_an_engine_that_keeps_the_stop_token_to_itself(self):
        place = world({"w1": [[[text("hi")], [end(matched_stop=ord("."))]]]})
        assert (await answer(place, stop=StopRules((".",)))).choices[0].finish == Finish(0, "stop", ".")

    async def test_a_special_token_as_stop_string(self):
        steps = [[TokenBatch(0, [*b"hi", mock.END_OF_TEXT])], [end()]]
        place = world({"w1": [steps]})
        done = await answer(place, stop=StopRules(("<|endoftext|>",)))
        assert (done.choices[0].text, done.choices[0].finish) == ("hi", Finish(0, "stop", "<|endoftext|>"))

    async def test_ignore_eos_lets_generation_run_on(self):
        steps = [[TokenBatch(0, [*b"a", EOS, *b"b"])], [end(reason="length")]]
        place = world({"w1": [steps]})
        done = await answer(place, stop=StopRules(ignore_eos=True))
        assert (done.choices[0].text, done.choices[0].finish.reason) == ("ab", "length")
        assert place.drivers.opened[0][1].ignore_eos

    async def test_end_ids_only_the_tokenizer_knows_are_sent_to_the_engine(self):
        place = world({"w1": [ONE_LINE]}, eos_ids=[])
        await run(place)
        assert place.drivers.opened[0][1].stop_ids == (EOS,)

    async def test_a_visible_stop_stays_in_the_text(self):
        place = world({"w1": [[[text("a##b")], FOREVER]]})
        done = await answer(place, stop=StopRules(("##",), visible=True))
        assert done.choices[0].text == "a##"

    async def test_text_held_for_a_stop_that_never_came_is_sent(self):
        done = await answer(world({"w1": [[[text("a#")], [end()]]]}), stop=StopRules(("##",)))
        assert done.choices[0].text == "a#"


class TestWhatTheEngineGets:
    async def test_room_left_in_the_context_is_the_default_limit(self):
        place = world({"w1": [ONE_LINE]}, context_length=200)
        await run(place)
        sent = place.drivers.opened[0][1]
        assert sent.limits.max_tokens == 200 - len(sent.ids)

    @pytest.mark.parametrize("limit", [None, 1])
    async def test_a_prompt_longer_than_the_context_names_both_numbers(self, limit):
        place = world({"w1": [ONE_LINE]}, context_length=5)
        with pytest.raises(GatewayError) as caught:
            await run(place, limits=Limits(limit))
        assert (caught.value.code, caught.value.status) == ("context_length_exceeded", 400)
        prompt = len(mock.encode_text("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"))
        assert "5 tokens" in caught.value.message
        assert str(prompt) in caught.value.message
        assert place.drivers.opened == []
        assert place.idle()

    async def test_a_limit_beyond_the_context_names_the_numbers(self):
        with pytest.raises(GatewayError) as caught:
            await run(world({"w1": [ONE_LINE]}, context_length=100), limits=Limits(99))
        assert caught.value.code == "context_length_exceeded"
        assert "99 for the completion" in caught.value.message

    async def test_an_unknown_context_leaves_the_limit_to_the_engine(self):
        place = world({"w1": [ONE_LINE]}, context_length=0)
        await run(place)
        assert place.drivers.opened[0][1].limits.max_tokens is None

    async def test_the_model_s_own_sampling_fills_what_was_left_out(self):
        place = world({"w1": [ONE_LINE]}, default_sampling={"temperature": 0.6, "top_k": 20.0, "top_p": 0.9})
        await run(place, sampling=Sampling(temperature=0.0))
        sampling = place.drivers.opened[0][1].sampling
        assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.0, 20, 0.9, None)

    async def test_media_is_refused_rather_than_forgotten(self):
        place = world({"w1": [ONE_LINE]})
        generation = Generation(place.services, context(), request())
        generation._request.messages = [Message("user", [MediaPart("image", url="http://h/i")])]
        with pytest.raises(GatewayError) as caught:
            await generation.start()
        assert (caught.value.status, caught.value.param) == (400, "messages[0].content[0]")
        assert place.idle()

    async def test_RO_01_an_unknown_model_never_reaches_an_engine(self):
        place = world({"w1": [ONE_LINE]})
        with pytest.raises(GatewayError) as caught:
            await run(place, model="nope")
        assert caught.value.code == "model_not_found"
        assert place.drivers.opened == []


class TestRetries:
    @pytest.mark.parametrize("first", [GONE, [GONE], [[TokenBatch(0)], GONE], [[end(reason="abort")]]])
    async def test_RL_03_a_failure_before_the_first_token_is_retried_elsewhere(self, first):
        place = world({"w1": [first], "w2": [ONE_LINE]})
        ctx = context()
        assert (
            "".join(event.text for event in flat(await run(place, ctx)) if isinstance(event, TextDelta))
            == "hello world"
        )
        assert [worker for worker, _ in place.drivers.opened] == ["w1", "w2"]
        ids = [sent.id for _, sent in place.drivers.opened]
        assert len(set(ids)) == 2
        assert place.fleet.region.worker_get(0, FAILURES) == 1
        assert (ctx.notes["worker"], ctx.notes["attempts"]) == ("w2", "2")
        assert place.metric("worker_retries_total") == 1
        assert place.idle()

    async def test_RL_03_a_failure_after_text_is_never_retried(self):
        without = Settings(routing=RoutingSettings(resume=False))
        place = world({"w1": [[[text("abc")], BROKEN]], "w2": [ONE_LINE]}, without)
        events = flat(await run(place))
        assert events == [TextDelta(0, "abc"), Failure("worker_stream_failed", "the stream broke", 502)]
        assert [worker for worker, _ in place.drivers.opened] == ["w1"]
        assert place.fleet.region.worker_get(0, FAILURES) == 1
        assert place.drivers.cancelled == []
        assert place.idle()

    async def test_RL_01_a_bad_request_is_not_retried_and_nobody_is_blamed(self):
        place = world({"w1": [BAD], "w2": [ONE_LINE]})
        with pytest.raises(GatewayError) as caught:
            await run(place)
        assert caught.value is BAD
        assert len(place.drivers.opened) == 1
        assert place.fleet.region.worker_get(0, FAILURES) == 0
        assert place.idle()

    async def test_RL_02_a_busy_worker_is_passed_over_without_blame(self):
        busy = GatewayError("rate_limit_exceeded", "full")
        place = world({"w1": [busy], "w2": [ONE_LINE]})
        await run(place)
        assert place.fleet.region.worker_get(0, FAILURES) == 0
        assert place.idle()

    async def test_a_single_worker_gets_another_chance(self):
        place = world({"w1": [GONE, GONE, ONE_LINE]})
        await run(place)
        assert len(place.drivers.opened) == 3
        assert place.idle()

    async def test_attempts_are_bounded(self):
        place = world({"w1": [GONE]})
        with pytest.raises(GatewayError) as caught:
            await run(place)
        assert caught.value is GONE
        assert len(place.drivers.opened) == 5
        assert place.idle()


class TestAdmission:
    async def test_one_too_many_is_429_and_a_place_is_free_again_afterwards(self):
        place = world({"w1": [[[text("a")], FOREVER], ONE_LINE]}, limited(1))
        first = Generation(place.services, context(), request())
        await first.start()
        with pytest.raises(GatewayError) as caught:
            await run(place)
        assert (caught.value.status, caught.value.headers()["retry-after"]) == (429, "1")
        await first.aclose("client_disconnect")
        await run(place)
        assert place.idle()

    async def test_who_finds_no_place_waits_its_turn(self):
        place = world({"w1": [[[text("a")], FOREVER], ONE_LINE]}, limited(1, 1))
        first = Generation(place.services, context(), request())
        await first.start()
        second = asyncio.create_task(run(place))
        await until(lambda: place.fleet.region.waiting_total() == 1)
        with pytest.raises(GatewayError) as caught:
            await run(place)
        assert caught.value.code == "queue_full"
        assert len(place.drivers.opened) == 1
        await first.aclose("client_disconnect")
        assert flat(await second)[-1] == Finish(0, "stop")
        assert place.idle()

    @pytest.mark.parametrize("reason", ["client_disconnect", "deadline", "shutdown"])
    async def test_RL_04_a_waiting_request_that_is_cancelled_never_starts(self, reason):
        place = world({"w1": [[[text("a")], FOREVER]]}, limited(1, 1))
        first = Generation(place.services, context(), request())
        await first.start()
        ctx = context()
        waiting = asyncio.create_task(run(place, ctx))
        await until(lambda: place.fleet.region.waiting_total() == 1)
        ctx.cancel.cancel(reason)
        with pytest.raises(GatewayError):
            await waiting
        assert place.fleet.region.waiting_total() == 0
        await first.aclose("client_disconnect")
        assert len(place.drivers.opened) == 1
        assert place.idle()


class TestCancellation:
    async def test_MS_10_what_was_held_is_given_out_before_the_failure(self):
        place = world({"w1": [[[text("a#")], BROKEN]]})
        events = flat(await run(place, stop=StopRules(("##",))))
        assert "".join(event.text for event in events[:-1]) == "a#"
        assert isinstance(events[-1], Failure)
        assert not any(isinstance(event, Finish) for event in events)

    async def test_RL_04_leaving_in_mid_stream_aborts_the_engine(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        generation = Generation(place.services, context(), request())
        await generation.start()
        await anext(generation)
        await generation.aclose("client_disconnect")
        assert place.drivers.cancelled == ["client_disconnect"]
        assert place.metric("engine_aborts_total") == 1
        assert place.fleet.region.worker_get(0, FAILURES) == 0
        assert place.idle()

    async def test_RL_04_leaving_before_the_first_token_aborts_the_engine(self):
        place = world({"w1": [[FOREVER]]})
        task = asyncio.create_task(run(place))
        await until(lambda: place.drivers.sources)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert place.drivers.cancelled == ["client_disconnect"]
        assert place.idle()

    async def test_a_deadline_before_the_first_token_is_504(self):
        place = world({"w1": [[FOREVER]], "w2": [ONE_LINE]})
        with pytest.raises(GatewayError) as caught:
            await run(place, context(deadline=clock.monotonic() + 0.02))
        assert (caught.value.code, caught.value.status) == ("deadline_exceeded", 504)
        assert place.fleet.region.worker_get(0, FAILURES) == 0
        assert place.drivers.cancelled == ["deadline"]
        assert place.idle()

    async def test_a_deadline_in_mid_stream_is_a_failure(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        events = flat(await run(place, context(deadline=clock.monotonic() + 0.02)))
        assert [type(event) for event in events] == [TextDelta, Failure]
        assert events[-1].code == "deadline_exceeded"
        assert place.drivers.cancelled == ["deadline"]
        assert place.idle()

    @pytest.mark.parametrize(
        ("reason", "code"),
        [("preempted", "overloaded"), ("shutdown", "shutting_down"), ("deadline", "deadline_exceeded")],
    )
    async def test_whoever_cancels_the_context_ends_the_stream(self, reason, code):
        place = world({"w1": [[[text("a")], FOREVER]]})
        ctx = context()
        running = asyncio.create_task(run(place, ctx))
        await until(lambda: place.drivers.sources and place.drivers.sources[0].pulls == 2)
        ctx.cancel.cancel(reason)
        assert flat(await running)[-1].code == code
        assert place.drivers.cancelled == [reason]
        assert place.idle()

    async def test_nothing_starts_for_a_request_that_is_cancelled_already(self):
        place = world({"w1": [ONE_LINE]})
        ctx = context()
        ctx.cancel.cancel("client_disconnect")
        with pytest.raises(GatewayError) as caught:
            await run(place, ctx)
        assert caught.value.status == 499
        assert place.drivers.opened == []
        assert place.idle()

    async def test_closing_twice_gives_back_once(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        generation = Generation(place.services, context(), request())
        await generation.start()
        await generation.aclose("error")
        await generation.aclose("error")
        assert len(place.drivers.cancelled) == 1
        assert place.idle()
        with pytest.raises(StopAsyncIteration):
            await anext(generation)


async def test_a_model_whose_ids_cannot_be_decoded_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(text_model(), "_decoder", None)
    place = world({"w1": [ONE_LINE]})
    with pytest.raises(GatewayError) as caught:
        await run(place)
    assert (caught.value.code, caught.value.status) == ("not_implemented", 501)
    assert place.drivers.opened == []
    assert place.idle()


@pytest.mark.parametrize(
    ("shown", "choice", "warning"),
    [
        (True, ToolChoice(), None),
        (False, ToolChoice("none"), None),
        (False, ToolChoice(), "the model's prompt has no place for tools"),
    ],
)
async def test_tools_that_the_model_is_not_shown_are_told(monkeypatch, shown, choice, warning):
    monkeypatch.setattr(text_model().chat(True), "shows_tools", shown)
    ctx = context()
    await run(world({"w1": [ONE_LINE]}), ctx, tools=[Tool("f")], tool_choice=choice)
    assert ctx.notes.get("warning") == warning


class TestDirect:
    class Sink:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: bytes) -> bool:
            self.data += data
            return True

        async def drain(self) -> None: ...

    class Templates:
        def __init__(self) -> None:
            self.counter = Counter()

        def template(self, choice: int, kind: str = "text", call: int = 0) -> ByteTemplate | None:
            mark = {"text": b"", "reasoning": b"~", "arguments": b"(%d)" % call}[kind]
            return ByteTemplate((b"<%d:%b" % (choice, mark), b">"), ("text",))

    async def direct(self, place: World, **fields):
        generation = Generation(place.services, context(), request(**fields))
        sink, events = self.Sink(), []
        try:
            await generation.start()
            taken = generation.direct(sink, self.Templates())
            async for pull in generation:
                events += pull
        finally:
            await generation.aclose()
        assert place.idle()
        return taken, sink.data, events

    async def test_text_goes_to_the_sink_and_only_the_end_is_told(self):
        place = world({"w1": [[[text("a")], [text('"b"', 1)], [end(0), text("c", 1)], [end(1, "length")]]]})
        taken, data, events = await self.direct(place, n=2)
        assert taken
        assert data == rb"<0:a><1:\"><1:b><1:\"><1:c>"
        assert events == [Finish(0, "stop"), Finish(1, "length"), Usage(events[-1].prompt_tokens, 5)]

    async def test_held_text_goes_the_same_way(self):
        taken, data, _ = await self.direct(world({"w1": [[[text("a#")], [end()]]]}), stop=StopRules(("##",)))
        assert (taken, data) == (True, b"<0:a><0:#>")

    async def test_a_stop_aborts_the_engine(self):
        place = world({"w1": [[[text("a##b")], FOREVER]]})
        _, data, events = await self.direct(place, stop=StopRules(("##",)))
        assert data == b"<0:a>"
        assert events[0] == Finish(0, "stop", "##")
        assert place.drivers.cancelled == ["stop"]

    async def test_a_broken_stream_gives_out_held_text_and_fails(self):
        _, data, events = await self.direct(world({"w1": [[[text("a#")], BROKEN]]}), stop=StopRules(("##",)))
        assert data == b"<0:a><0:#>"
        assert [type(event) for event in events] == [Failure]

    async def test_logprobs_need_python(self):
        taken, data, _ = await self.direct(world({"w1": [ONE_LINE]}), logprobs=Logprobs(0))
        assert (taken, data) == (False, b"")


class TestParsedDirect:
    """Rows with a parser: what it can wait with goes to the sink, everything else comes as events."""

    Sink, Templates = TestDirect.Sink, TestDirect.Templates
    TOOLS = (Tool("f", parameters={"type": "object"}),)

    async def steps(self, place: World, **fields):
        """What the client got of each pull, in order: bytes that went to the sink, and events that are no usage."""
        generation = Generation(place.services, context(), request(**({"model": "qwen3"} | fields)))
        sink, steps = self.Sink(), []
        try:
            await generation.start()
            assert not generation.direct(sink, self.Templates()), "what comes first comes as an event"
            async for pull in generation:
                if sink.data:
                    steps.append(sink.data.decode())
                sink.data = b""
                steps += [event for event in pull if not isinstance(event, Usage)]
        finally:
            await generation.aclose()
        assert place.idle()
        return steps, generation.usage

    async def told(self, *script, own=SETTINGS, **fields):
        return await self.steps(world({"w1": [list(script)]}, own, "qwen3", context_length=1000), **fields)

    async def spelled(self, *script, **fields):
        """The same where markers count that the model spells in several tokens."""
        own = msgspec.structs.replace(SETTINGS, model=ModelSettings(marker_match="text"))
        return await self.told(*script, own=own, **fields)

    async def test_an_answer_goes_direct_once_it_has_begun(self):
        steps, usage = await self.spelled([text("he")], [text("ll")], [text("o <")], [text("b>"), end()])
        assert steps == [TextDelta(0, "he"), "<0:l><0:l>", "<0:o><0: >", "<0:<b><0:>>", Finish(0, "stop")]
        assert usage.completion_tokens == len("hello <b>")

    async def test_reasoning_goes_direct_between_its_markers(self):
        steps, _ = await self.spelled(
            [text("<think>h")], [text("m")], [text("m</")], [text("think>a")], [text("b")], [end()]
        )
        reasoning = [ReasoningDelta(0, "h"), "<0:~m>", "<0:~m>"]
        assert steps == [*reasoning, TextDelta(0, "a"), "<0:b>", Finish(0, "stop")]

    async def test_nothing_is_held_for_markers_that_are_tokens(self):
        steps, _ = await self.told([text("<think>h")], [text("m</")], [text("think>")], [text("</think>a")], [end()])
        reasoning = [ReasoningDelta(0, "h"), "<0:~m><0:~<><0:~/>", "<0:~t><0:~h><0:~i><0:~n><0:~k><0:~>>"]
        assert steps == [*reasoning, TextDelta(0, "a"), Finish(0, "stop")]

    async def test_arguments_go_direct_up_to_their_end(self):
        call = '<tool_call>{"name": "f", "arguments": {'
        steps, _ = await self.told(
            [text(call)], [text('"a": "')], [text('x}"')], [text("}}</tool_call>")], [end()], tools=self.TOOLS
        )
        start, *rest = steps
        assert (type(start), start.name) == (ToolCallStart, "f")
        assert rest == [
            ToolCallDelta(0, 0, '{"a": "'),
            '<0:(0)x><0:(0)}><0:(0)\\">',
            ToolCallDelta(0, 0, "}"),
            ToolCallEnd(0, 0),
            Finish(0, "tool_calls"),
        ]

    async def test_what_comes_in_one_pull_keeps_its_order(self):
        batches = [text("b <think>"), text("c"), text("</think>"), text("d")]
        steps, _ = await self.told([text("a")], batches, [text("e"), end()])
        thought = [ReasoningDelta(0, "c"), TextDelta(0, "d")]
        assert steps == [TextDelta(0, "a"), "<0:b><0: >", *thought, "<0:e>", Finish(0, "stop")]

    async def test_held_text_comes_as_an_event_at_the_end(self):
        steps, _ = await self.spelled([text("a")], [text("b<thi")], [end()])
        assert steps == [TextDelta(0, "a"), "<0:b>", TextDelta(0, "<thi"), Finish(0, "stop")]

    async def test_a_stop_string_ends_it(self):
        steps, usage = await self.told([text("a")], [text("b##c")], FOREVER, stop=StopRules(("##",)))
        assert steps == [TextDelta(0, "a"), "<0:b>", Finish(0, "stop", "##")]
        assert usage.completion_tokens == 4

    async def test_a_broken_stream_gives_out_held_text_and_fails(self):
        steps, _ = await self.spelled([text("a")], [text("b<thi")], BROKEN)
        assert steps[:3] == [TextDelta(0, "a"), "<0:b>", TextDelta(0, "<thi")]
        assert [type(step) for step in steps[3:]] == [Failure]

    async def test_choices_take_turns_by_themselves(self):
        steps, _ = await self.told(
            [text("a"), text("<think>x", 1)], [text("b<think>"), text("y", 1)], [end(0), end(1)], n=2
        )
        first = [TextDelta(0, "a"), ReasoningDelta(1, "x")]
        assert steps == [*first, "<0:b><1:~y>", Finish(0, "stop"), Finish(1, "stop")]

    @pytest.mark.parametrize("fields", [{"logprobs": Logprobs(0)}, {"return_ids": True}])
    async def test_what_rides_on_events_needs_python(self, fields):
        steps, _ = await self.told([text("a")], [text("b")], [end()], **fields)
        assert not any(isinstance(step, str) for step in steps)

    def test_text_does_not_overtake_events_that_a_broken_source_has_left(self):
        # A source that feeds rows by itself tells the taps at its end, and no batch comes to take the events along.
        table, chain = make_table(), Chain(0, Start(), factory(PLAIN)(Start()))
        choice = Choice(table, RowSpec(), text_model().decoder, chain, Stops(frozenset(), (), frozenset(), {}))
        choice.follow(self.Sink(), self.Templates())
        choice.feed(text("a"))
        assert choice.go()
        table.feed(choice.row, mock.encode_text("<think>so"))
        assert not choice.go()
        assert choice.feed(TokenBatch(0)) == [ReasoningDelta(0, "so")]
        assert choice.go()

    async def test_without_a_template_there_is_python(self, monkeypatch):
        monkeypatch.setattr(self.Templates, "template", lambda *_: None)
        steps, _ = await self.told([text("a")], [text("b")], [end()])
        assert steps == [TextDelta(0, "a"), TextDelta(0, "b"), Finish(0, "stop")]


@settings(max_examples=60, deadline=None)
@given(
    turns=st.integers(0, 25),
    script=st.sampled_from(
        [
            ONE_LINE,
            [[text("a")], FOREVER],
            [0.0, GONE],
            [[text("a#")], BROKEN],
            [[text("a##")], FOREVER],
            [[TokenBatch(0, [EOS])], FOREVER],
        ]
    ),
    fails=st.booleans(),
    why=st.sampled_from(["task", "deadline", "preempted"]),
)
def test_cancelled_anywhere_nothing_leaks(turns, script, fails, why):
    """Cancelled after any number of loop turns, by the task or the context: counts, rows and engines are let go."""

    async def main() -> None:
        place = world({"w1": [GONE if fails else script], "w2": [script]})
        ctx = context()
        task = asyncio.create_task(run(place, ctx, stop=StopRules(("##",))))
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
        for _ in range(3):
            await asyncio.sleep(0)
        assert place.idle()
        for source in place.drivers.sources:
            assert len(source.cancelled) <= 1

    asyncio.run(main())


class TestWhileTheTokenizerLoads:
    async def test_a_request_waits_for_the_load_of_its_process(self):
        place = world({"w1": [ONE_LINE]})
        place.texts.loaded, place.texts.load = False, Future()
        running = asyncio.create_task(run(place))
        await asyncio.sleep(0.02)
        assert not running.done()
        place.texts.finish_load()
        assert flat(await running)[0] == TextDelta(0, "hello")
        assert place.idle()

    async def test_not_longer_than_its_client(self):
        place = world({"w1": [ONE_LINE]})
        place.texts.loaded, place.texts.load = False, Future()
        ctx = context()
        running = asyncio.create_task(run(place, ctx))
        await asyncio.sleep(0.02)
        ctx.cancel.cancel("client_disconnect")
        with pytest.raises(GatewayError) as caught:
            await running
        assert caught.value.status == 499
        assert not place.texts.load.cancelled(), "the load is everybody's"
        assert place.idle()

    async def test_a_request_waits_while_control_prepares_it(self):
        place = world({"w1": [ONE_LINE]})
        place.texts.loaded = False
        running = asyncio.create_task(run(place))
        await asyncio.sleep(0.02)
        assert not running.done()
        place.texts.loaded = True
        assert flat(await running)[0] == TextDelta(0, "hello")
        assert place.idle()

    async def test_what_cannot_be_had_is_refused_at_once(self):
        place = world({"w1": [ONE_LINE]})
        place.texts.loaded = False
        place.fleet.snapshot().models[0].tokenizer_error = "no engine of the model is up"
        with pytest.raises(GatewayError) as caught:
            await run(place)
        assert caught.value.code == "tokenizer_not_ready"
