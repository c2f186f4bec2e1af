"""Rows of log probabilities: which go out, and with what text."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.batch import TokenBatch, TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Finish, PromptLogprobs, TextDelta
from smg.core.request import GenerationRequest, Limits, Logprobs, Message, StopRules
from smg.engine_server.mock import tokenizer as mock
from smg.pipeline.generation import Generation
from smg.pipeline.prompt import PromptReport
from tests.pipeline.fakes import EOS, end, world


def scored(content, index=0, **fields) -> TokenBatch:
    ids = mock.encode_text(content) if isinstance(content, str) else content
    return TokenBatch(index, ids, logprobs=[TokenLogprobs(token, -1.0) for token in ids], **fields)


async def run(script, **fields):
    place = world({"w1": [script]})
    fields = {"messages": [Message("user", "hi")], "logprobs": Logprobs()} | fields
    generation = Generation(place.services, RequestContext("r"), GenerationRequest("test", "m", **fields))
    await generation.start()
    events = [event async for events in generation for event in events]
    await generation.aclose()
    assert place.idle()
    return events


def told(events) -> list[int]:
    """Token ids of all rows, in order."""
    return [row.token for event in events if isinstance(event, TextDelta) for row in event.logprobs or ()]


class TestStops:
    STOP = StopRules(strings=("STOP",))

    @pytest.mark.parametrize("cut", [["go STOP now"], ["go S", "TO", "P now"], list("go STOP now")])
    async def test_tokens_of_a_hidden_stop_string_have_no_row(self, cut):
        events = await run([[scored(piece)] for piece in cut], stop=self.STOP)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "go "
        assert told(events) == mock.encode_text("go ")

    async def test_a_token_that_is_partly_shown_keeps_its_row(self):
        (hello,) = mock.encode_text(" there")
        events = await run([[scored([hello])]], stop=StopRules(strings=("re",)))
        assert told(events) == [hello]

    async def test_of_a_visible_stop_string_all_have_one(self):
        events = await run([[scored("go STOP")]], stop=StopRules(strings=("STOP",), visible=True))
        assert told(events) == mock.encode_text("go STOP")

    async def test_rows_of_held_text_go_out_with_it(self):
        events = await run([[scored("a S")], [scored("T.")], [end()]], stop=self.STOP)
        deltas = [(event.text, len(event.logprobs or ())) for event in events if isinstance(event, TextDelta)]
        assert deltas == [("a ", 2), ("ST.", 3)]

    async def test_rows_of_text_that_is_held_to_the_end_are_not_lost(self):
        events = await run([[scored("a ST")], [end(reason="length")]], stop=self.STOP)
        assert told(events) == mock.encode_text("a ST")

    async def test_half_a_character_waits_for_the_other_half(self):
        events = await run([[scored([0xC3])], [scored([0xA9])], [end()]])
        assert [(e.text, len(e.logprobs)) for e in events if isinstance(e, TextDelta)] == [("é", 2)]

    async def test_skipped_special_tokens_keep_their_rows(self):
        events = await run([[scored([97, mock.END_OF_TEXT])], [scored("b")], [end()]])
        assert told(events) == [97, mock.END_OF_TEXT, 98]

    @given(cuts=st.sets(st.integers(1, 22)), visible=st.booleans())
    def test_however_the_engine_cuts_the_rows_are_the_same(self, cuts, visible):
        ids = mock.encode_text("né go ST STO STOP and more")
        places = [0, *sorted(cuts), len(ids)]
        script = [[scored(ids[a:b])] for a, b in pairwise(places)]
        events = asyncio.run(run([*script, [end()]], stop=StopRules(strings=("STOP",), visible=visible)))
        expected = "né go ST STO STOP" if visible else "né go ST STO "
        assert told(events) == mock.encode_text(expected)


class TestIds:
    async def test_with_ids_every_id_has_its_row(self):
        script = [[scored("go STOP")], [end()]]
        events = await run(script, stop=StopRules(strings=("STOP",)), return_ids=True)
        deltas = [event for event in events if isinstance(event, TextDelta)]
        assert [token for event in deltas for token in event.ids or ()] == mock.encode_text("go STOP")
        assert told(events) == mock.encode_text("go STOP")

    async def test_the_hidden_end_too(self):
        events = await run([[scored([97, EOS])], [end()]], return_ids=True)
        assert told(events) == [97, EOS]


class TestPrompts:
    ROWS = (TokenLogprobs(1, None), TokenLogprobs(2, -0.5))
    ASKED = Logprobs(0, prompt=True)

    async def test_the_prompt_comes_before_the_first_text_of_every_choice(self):
        script = [[scored("a", 0, prompt_logprobs=list(self.ROWS))], [scored("b", 1)], [end(0), end(1)]]
        events = await run(script, n=2, logprobs=self.ASKED)
        for choice in (0, 1):
            own = [event for event in events if getattr(event, "choice", None) == choice]
            assert own[0] == PromptLogprobs(choice, self.ROWS)
            assert isinstance(own[1], TextDelta)
            assert isinstance(own[-1], Finish)

    async def test_text_waits_for_an_engine_that_tells_of_the_prompt_last(self):
        script = [[scored("a")], [scored("b")], [end(prompt_logprobs=list(self.ROWS))]]
        events = await run(script, logprobs=self.ASKED)
        kinds = [type(event).__name__ for event in events if type(event).__name__ != "Usage"]
        assert kinds == ["PromptLogprobs", "TextDelta", "TextDelta", "Finish"]

    async def test_an_engine_that_never_tells_keeps_no_text_back(self):
        events = await run([[scored("a")], [end()]], logprobs=self.ASKED)
        assert told(events) == [97]

    async def test_text_that_waits_is_not_lost_when_the_stream_breaks(self):
        broken = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
        events = await run([[scored("a")], broken], logprobs=self.ASKED)
        assert [type(event).__name__ for event in events] == ["Usage", "TextDelta", "Failure"]

    def test_rows_are_told_once(self):
        report = PromptReport()
        report.learn(self.ROWS)
        report.learn([TokenLogprobs(9, 0.0)])
        assert report.order(0, []) == [PromptLogprobs(0, self.ROWS)]
        assert report.order(0, [TextDelta(0, "a")]) == [TextDelta(0, "a")]


class TestOnlyThePrompt:
    async def test_no_tokens_are_returned_and_the_engine_is_not_aborted(self):
        place = world({"w1": [[[scored("a")], [end(reason="length")]]]})
        request = GenerationRequest("test", "m", prompt_text="hi", limits=Limits(0), logprobs=Logprobs(0, prompt=True))
        generation = Generation(place.services, RequestContext("r"), request)
        await generation.start()
        events = [event async for events in generation for event in events]
        await generation.aclose()
        assert [event for event in events if isinstance(event, TextDelta | Finish)] == [Finish(0, "length")]
        assert events[-1].completion_tokens == 0
        assert place.drivers.opened[0][1].limits == Limits(1)
        assert place.drivers.cancelled == []
        assert place.idle()
