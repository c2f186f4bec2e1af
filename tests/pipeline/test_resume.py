"""A generation whose worker dies in the middle goes on on another one, and the client cannot tell (spec routing 6)."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.region import FAILURES
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Failure, Finish, TextDelta, Usage
from smg.core.request import (
    Constraint,
    GenerationRequest,
    Limits,
    Logprobs,
    MediaPart,
    Message,
    Sampling,
    StopRules,
    Tool,
)
from smg.core.stream import ByteTemplate, Counter
from smg.engine_server.mock import tokenizer as mock
from smg.pipeline.generation import Generation
from smg.pipeline.resume import may_resume
from smg.telemetry.families import split_key
from tests.pipeline.fakes import World, end, text, world

BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
GONE = GatewayError("worker_failed", "the engine has gone", worker_fault=True)
BUSY = GatewayError("rate_limit_exceeded", "full")
MESSAGES = [Message("user", "hi")]


def dying(*pieces: str, error: GatewayError = BROKEN) -> list:
    return [*[[text(piece)] for piece in pieces], error]


def going_on(*pieces: str, **fields) -> list:
    return [*[[text(piece)] for piece in pieces], [end(**fields)]]


async def run(place: World, ctx: RequestContext | None = None, **fields) -> list:
    asked = GenerationRequest("test", "m", messages=MESSAGES, **fields)
    generation = Generation(place.services, ctx or RequestContext("r", endpoint="/t"), asked)
    try:
        await generation.start()
        return [event async for events in generation for event in events]
    finally:
        await generation.aclose()


async def run_direct(place: World) -> list[bytes]:
    """What goes straight to the sink of a stream, each delta between angle brackets."""
    generation = Generation(
        place.services, RequestContext("r"), GenerationRequest("test", "m", messages=MESSAGES, stream=True)
    )
    await generation.start()
    out: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> None:
            out.append(bytes(data))

    class Templates:
        counter = Counter()

        def template(self, choice: int, kind: str = "text", call: int = 0) -> ByteTemplate:
            return ByteTemplate((b"<", b">"), ("text",))

    assert generation.direct(Sink(), Templates())
    async for _ in generation:
        pass
    await generation.aclose()
    return out


def in_turn(*scripts) -> World:
    """As many workers as scripts; whoever is asked next follows the next one."""
    shared = list(scripts)
    return world({f"w{number}": shared for number in range(len(scripts))})


def said(events: list) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def usage_of(events: list) -> Usage:
    return [event for event in events if isinstance(event, Usage)][-1]


def counted(place: World, name: str) -> dict[tuple[str, ...], int]:
    split = ((split_key(key), value) for key, _, value in place.cells.read_series())
    return {labels: value for (sample, labels), value in split if sample == name}


class TestTheRest:
    async def test_is_asked_for_after_the_ids_that_came(self):
        place = world({"w1": [dying("hello", " wo")], "w2": [going_on("rld")]})
        ctx = RequestContext("r", endpoint="/t")
        events = await run(place, ctx, limits=Limits(50, 9))
        assert said(events) == "hello world"
        assert [event for event in events if isinstance(event, Finish)] == [Finish(0, "stop")]
        (_, first), (_, second) = place.drivers.opened
        came = mock.encode_text("hello") + mock.encode_text(" wo")
        assert list(second.ids) == [*first.ids, *came]
        assert second.limits == Limits(50 - len(came), 9 - len(came))
        assert second.id != first.id

    async def test_usage_counts_everything_once(self):
        place = world({"w1": [dying("hello", " wo")], "w2": [going_on("rld", reason="length")]})
        first = TokenBatch(0, mock.encode_text("x"), cached_tokens=4, reasoning_tokens=1)
        second = TokenBatch(0, mock.encode_text("y"), cached_tokens=19, reasoning_tokens=2)
        place = world({"w1": [[[first], BROKEN]], "w2": [[[second], [end()]]]})
        usage = usage_of(await run(place))
        assert usage.prompt_tokens == len(place.drivers.opened[0][1].ids)
        assert (usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens) == (2, 4, 3)

    async def test_marks_are_left_for_operators(self):
        place = world({"w1": [dying("a")], "w2": [going_on("b")]})
        ctx = RequestContext("r", endpoint="/t")
        await run(place, ctx)
        assert (ctx.notes["worker"], ctx.notes["attempts"], ctx.notes["resumed"]) == ("w2", "2", "1")
        assert counted(place, "smg_worker_resumes_total") == {("/t", "resumed"): 1}
        assert counted(place, "smg_worker_cb_outcomes_total") == {}
        assert place.fleet.region.worker_get(0, FAILURES) == 1
        assert place.idle()

    async def test_a_character_that_was_cut_apart_is_whole(self):
        whole = list("😀".encode())
        first, second = [TokenBatch(0, whole[:2])], [TokenBatch(0, whole[2:])]
        place = world({"w1": [[first, BROKEN]], "w2": [[second, [end()]]]})
        assert said(await run(place)) == "😀"

    async def test_a_stop_string_that_was_cut_apart_still_stops(self):
        place = world({"w1": [dying("go ST")], "w2": [going_on("OP on")]})
        events = await run(place, stop=StopRules(strings=("STOP",)))
        assert said(events) == "go "
        assert Finish(0, "stop", "STOP") in events
        assert place.idle()

    async def test_nothing_is_asked_for_when_all_tokens_had_come(self):
        place = world({"w1": [dying("abc")], "w2": [going_on("d")]})
        events = await run(place, limits=Limits(len(mock.encode_text("abc"))))
        assert (said(events), events[-2]) == ("abc", Finish(0, "length"))
        assert len(place.drivers.opened) == 1
        assert place.fleet.region.worker_get(0, FAILURES) == 1
        assert place.idle()

    async def test_a_seed_moves_on_and_penalties_become_a_bias(self):
        sampling = Sampling(seed=7, presence_penalty=0.5, frequency_penalty=1.0, logit_bias={65: 2.0})
        place = world({"w1": [[[TokenBatch(0, [65, 66, 65])], BROKEN]], "w2": [going_on("b")]})
        await run(place, sampling=sampling)
        second = place.drivers.opened[1][1].sampling
        assert (second.seed, second.logit_bias) == (10, {65: 2.0 - 2.5, 66: -1.5})
        assert place.drivers.opened[0][1].sampling.logit_bias == {65: 2.0}

    async def test_log_probabilities_go_on(self):
        scored = [TokenBatch(0, [65], [TokenLogprobs(65, -1.0)]), TokenBatch(0, [66], [TokenLogprobs(66, -2.0)])]
        place = world({"w1": [[[scored[0]], BROKEN]], "w2": [[[scored[1]], [end()]]]})
        events = await run(place, logprobs=Logprobs())
        rows = [row.logprob for event in events if isinstance(event, TextDelta) for row in event.logprobs or ()]
        assert rows == [-1.0, -2.0]

    async def test_tools_the_gateway_parses_itself_are_no_obstacle(self):
        place = world({"w1": [dying("a")], "w2": [going_on("b")]})
        assert said(await run(place, tools=[Tool("f", parameters={})])) == "ab"

    async def test_direct_rows_go_on_too(self):
        place = world({"w1": [dying("hello", " wo")], "w2": [going_on("rld")]})
        out = await run_direct(place)
        assert b"".join(out).replace(b"><", b"") == b"<hello world>"
        assert place.idle()


class TestWhoGoesOn:
    async def test_several_may_die_one_after_the_other(self):
        place = in_turn(dying("a"), dying("b"), going_on("c"))
        ctx = RequestContext("r", endpoint="/t")
        assert said(await run(place, ctx)) == "abc"
        assert ctx.notes["resumed"] == "2"
        assert place.idle()

    async def test_one_that_refuses_is_passed_over(self):
        place = in_turn(dying("a"), BUSY, going_on("b"))
        assert said(await run(place)) == "ab"

    async def test_never_the_one_that_died(self):
        place = world({"w1": [dying("a"), going_on("b")]})
        events = await run(place)
        assert said(events) == "a"
        assert events[-1] == Failure("worker_stream_failed", "the stream broke", 502)
        assert counted(place, "smg_worker_resumes_total") == {("/t", "failed"): 1}
        assert place.idle()

    async def test_when_nobody_can_the_first_failure_is_told(self):
        place = world({"w1": [dying("a")], "w2": [GatewayError("invalid_request", "no")]})
        events = await run(place)
        assert events[-1] == Failure("worker_stream_failed", "the stream broke", 502)
        assert place.idle()

    async def test_a_cancelled_request_does_not_go_on(self):
        place = world({"w1": [[[text("a")], 0.01, BROKEN]], "w2": [going_on("b")]})
        ctx = RequestContext("r", endpoint="/t")
        generation = Generation(place.services, ctx, GenerationRequest("test", "m", messages=MESSAGES))
        await generation.start()
        await anext(generation)
        ctx.cancel.cancel("deadline")
        events = await anext(generation)
        await generation.aclose()
        assert events[-1].code == "deadline_exceeded"
        assert len(place.drivers.opened) == 1
        assert place.idle()


class TestWhatCannotGoOn:
    @pytest.mark.parametrize(
        "fields",
        [
            {"n": 2},
            {"constraint": Constraint("regex", "a+")},
            {"logprobs": Logprobs(prompt=True)},
        ],
        ids=["several choices", "a grammar's state died", "prompt log probabilities"],
    )
    async def test_ends_in_a_visible_error(self, fields):
        place = world({"w1": [dying("a")], "w2": [going_on("b")]})
        events = await run(place, **fields)
        assert events[-1] == Failure("worker_stream_failed", "the stream broke", 502)
        assert len(place.drivers.opened) == 1
        assert place.idle()

    @pytest.mark.parametrize(
        ("fields", "error", "why"),
        [
            ({"constraint": Constraint("regex", "a+")}, BROKEN, "requests with a constraint, media,"),
            ({}, BROKEN, "no other worker, or no attempt, is left"),
            ({}, BUSY, "others are not asked after such an error"),
        ],
    )
    async def test_the_log_says_who_broke_off_and_why_nobody_went_on(self, caplog, fields, error, why):
        place = world({"w1": [dying("ab", error=error)]})
        await run(place, **fields)
        (record,) = [record for record in caplog.records if record.name == "smg.pipeline"]
        assert (record.levelname, record.message) == ("WARNING", "answer broke off")
        assert (record.worker, record.worker_url) == ("w1", place.fleet.workers["w1"].url)
        assert (record.code, record.error, record.tokens) == (error.code, error.message, len(mock.encode_text("ab")))
        assert record.why.startswith(why)

    async def test_the_log_counts_the_tokens_of_a_stream_that_went_straight_to_its_socket(self, caplog):
        place = world({"w1": [dying("abc", error=BUSY)]})
        assert b"".join(await run_direct(place)).replace(b"><", b"") == b"<abc>"
        (record,) = [record for record in caplog.records if record.message == "answer broke off"]
        assert record.tokens == len(mock.encode_text("abc"))

    def test_images_are_not_kept_for_it(self):
        image = Message("user", [MediaPart("image", url="https://a/b.png")])
        assert may_resume(GenerationRequest("test", "m", messages=MESSAGES), None)
        assert not may_resume(GenerationRequest("test", "m", messages=[image]), None)

    async def test_neither_what_no_worker_is_to_blame_for(self):
        place = world({"w1": [dying("a", error=BUSY)], "w2": [going_on("b")]})
        assert (await run(place))[-1].code == "rate_limit_exceeded"


@settings(deadline=None, max_examples=60)
@given(data=st.data())
async def test_wherever_it_is_cut_no_character_is_missing_or_doubled(data):
    answer = data.draw(st.text(min_size=1, max_size=12))
    ids = list(answer.encode())
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(ids) - 1, 1)), max_size=3)))
    bounds = [0, *[cut for cut in cuts if cut < len(ids)], len(ids)]
    parts = [ids[a:b] for a, b in pairwise(bounds)]
    scripts = [[[TokenBatch(0, part)], BROKEN] for part in parts[:-1]]
    place = in_turn(*scripts, [[TokenBatch(0, parts[-1])], [end()]])
    events = await run(place)
    assert said(events) == answer
    assert usage_of(events).completion_tokens == len(ids)
    assert place.idle()
