"""The chain: events, log probabilities exactly once, calls and their ids, and the end."""

import random

import pytest

from smg.core.batch import TokenLogprobs
from smg.core.events import Finish, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from smg.core.stream import RowOutput
from smg.parsing.base import CallArguments, CallEnd, CallStart, Content, Reasoning, Start
from smg.parsing.chain import Chain
from tests.parsing.runs import chain_of, feed, fold, reasoning_parser
from tests.splits import splits


class Brackets:
    """A toy tool format: ``[name:arguments]`` is a call, everything else text."""

    markers = ("[", "]")

    def __init__(self, native_id=None):
        self.native_id = native_id
        self.state = "text"
        self.name = ""

    def feed(self, text):
        pieces = []
        for char in text:
            match self.state, char:
                case "text", "[":
                    self.state, self.name = "name", ""
                case "name", ":":
                    self.state = "arguments"
                    pieces.append(CallStart(self.name, self.native_id))
                case "name", _:
                    self.name += char
                case "arguments", "]":
                    self.state = "text"
                    pieces.append(CallEnd())
                case "arguments", _:
                    pieces.append(CallArguments(char))
                case _:
                    pieces.append(Content(char))
        return pieces

    def finish(self, cut=False):
        return [Content("[" + self.name)] if self.state == "name" else []


class Broken:
    markers = ()

    def __init__(self, on_feed=True):
        self.on_feed = on_feed

    def feed(self, text):
        if self.on_feed:
            raise RuntimeError("boom")
        return [Content(text)]

    def finish(self, cut=False):
        raise RuntimeError("boom")


class Holder:
    """Holds text up to a full stop; fails at a ``!``, or at the end."""

    markers = ()

    def __init__(self, kind=Content):
        self.kind = kind
        self.held = ""

    def feed(self, text):
        if "!" in text:
            raise RuntimeError("boom")
        self.held += text
        done, stop, rest = self.held.rpartition(".")
        self.held = rest
        return [self.kind(done + stop)] if stop else []

    def finish(self):
        raise RuntimeError("boom")


class Bursting(Brackets):
    """Brackets that holds a call's text back until it is whole, and fails at a ``!``."""

    def __init__(self):
        super().__init__()
        self.held = ""

    def feed(self, text):
        if "!" in text:
            raise RuntimeError("boom")
        self.held += text
        if self.held.count("[") > self.held.count("]"):
            return []
        text, self.held = self.held, ""
        return super().feed(text)

    def finish(self):
        raise RuntimeError("boom")


def with_tools(**options):
    start = Start()
    return Chain(0, start, None, Brackets(options.pop("native_id", None)), **options)


def scored(*tokens):
    return [TokenLogprobs(token, -0.5) for token in tokens]


def test_a_chain_without_parsers_is_plain_and_passes_text_on():
    chain = Chain(3, Start())
    assert (chain.plain, chain.markers) == (True, ())
    assert chain.feed(RowOutput(3, "a", [1], None)) == [TextDelta(3, "a")]
    assert chain.feed(RowOutput(3, "", [2], None)) == []
    assert chain.finish("stop", "END") == [Finish(3, "stop", "END")]


def test_a_chain_with_a_parser_is_not_plain_and_tells_its_markers():
    chain = chain_of("qwen3")
    assert not chain.plain
    assert {"<think>", "</think>"} <= set(chain.markers)


def test_calls_become_events_with_indexes_and_final_ids():
    minted = iter(["one", "two"])
    chain = with_tools(mint=lambda name, number: next(minted))
    assert feed(chain, ["hi [f:{}]", "[g:{1", "}]!"]) == [
        TextDelta(0, "hi "),
        ToolCallStart(0, 0, "one", "f"),
        ToolCallDelta(0, 0, "{}"),
        ToolCallEnd(0, 0),
        ToolCallStart(0, 1, "two", "g"),
        ToolCallDelta(0, 1, "{1"),
        ToolCallDelta(0, 1, "}"),
        ToolCallEnd(0, 1),
        TextDelta(0, "!"),
    ]
    assert chain.finish("stop") == [Finish(0, "tool_calls")]


def test_calls_are_the_same_for_every_split():
    for split in splits(["hi [f:{}] and [g:{1}]"]):
        chain = with_tools()
        assert fold(feed(chain, split) + chain.finish("stop")) == (
            "",
            "hi  and ",
            [("f", "{}"), ("g", "{1}")],
            "tool_calls",
        )


@pytest.mark.parametrize("native", ["", "two words", "x" * 200, None])
def test_unusable_ids_of_the_model_are_replaced(native):
    chain = with_tools(native_id=native, mint=lambda name, number: "minted")
    assert feed(chain, ["[f:"])[0].id == "minted"


def test_ids_of_the_model_are_kept_once():
    chain = with_tools(native_id="functions.f:0", mint=lambda name, number: "minted")
    assert [event.id for event in feed(chain, ["[f:][f:]"]) if isinstance(event, ToolCallStart)] == [
        "functions.f:0",
        "minted",
    ]


def test_minted_ids_are_unique():
    chain = with_tools()
    calls = [event.id for event in feed(chain, ["[f:]" * 20]) if isinstance(event, ToolCallStart)]
    assert len(set(calls)) == 20
    assert all(call.startswith("call_") for call in calls)


def test_OA_05_the_token_limit_inside_a_call():
    for split in splits(['[write_file:{"path": "a.txt", "text": "hel']):
        chain = with_tools()
        events = feed(chain, split) + chain.finish("length")
        assert fold(events) == ("", "", [("write_file", '{"path": "a.txt", "text": "hel')], "length")
        assert events[-2:] == [ToolCallEnd(0, 0, complete=False), Finish(0, "length")]


def test_OA_05_the_token_limit_before_the_name_is_complete_gives_text():
    chain = with_tools()
    assert fold(feed(chain, ["a [wri"]) + chain.finish("length")) == ("", "a [wri", [], "length")


TOKENS = ["<think>", "a", "</think>", "[f:", "{}", "]", "b"]


def logprob_tokens(events):
    kinds = (TextDelta, ReasoningDelta, ToolCallStart, ToolCallDelta)
    return [row.token for event in events if isinstance(event, kinds) for row in event.logprobs or ()]


def test_OA_06_one_logprob_per_token_in_order_and_none_twice():
    generator = random.Random(3)
    for _ in range(50):
        start = Start()
        chain = Chain(0, start, reasoning_parser("qwen3", start), Brackets())
        events, at = [], 0
        while at < len(TOKENS):
            size = generator.randint(1, 3)
            ids = range(at, min(at + size, len(TOKENS)))
            # Text may be late, as it is behind a stop string or half a character.
            events += chain.feed(RowOutput(0, "", list(ids), scored(*ids)))
            events += chain.feed(RowOutput(0, "".join(TOKENS[token] for token in ids), (), None))
            at += size
        events += chain.finish("stop")
        assert logprob_tokens(events) == list(range(7))
        assert fold(events) == ("a", "b", [("f", "{}")], "tool_calls")


def test_OA_06_entries_without_a_visible_delta_ride_on_an_empty_one():
    chain = chain_of("qwen3")
    assert chain.feed(RowOutput(0, "<think>", [1], scored(1))) == []
    assert chain.finish("stop") == [TextDelta(0, "", tuple(scored(1))), Finish(0, "stop")]


def test_ids_ride_along_only_when_wanted():
    chain = Chain(0, Start(), with_ids=True)
    assert chain.feed(RowOutput(0, "", [5], None)) == []
    assert chain.feed(RowOutput(0, "x", [6], None)) == [TextDelta(0, "x", None, (5, 6))]
    assert chain.feed(RowOutput(0, "", [7], None, stopped=True)) == []
    assert chain.finish("stop") == [TextDelta(0, "", None, (7,)), Finish(0, "stop")]


def test_one_event_per_kind_and_batch():
    assert feed(chain_of("qwen3"), ["<think>a</think><think>b</think>c"]) == [
        ReasoningDelta(0, "ab"),
        TextDelta(0, "c"),
    ]


@pytest.mark.parametrize("place", ["reasoning", "tools"])
def test_a_parser_that_fails_loses_no_text(place, caplog):
    parsers = {"reasoning": None, "tools": None} | {place: Broken()}
    chain = Chain(0, Start(), parsers["reasoning"], parsers["tools"])
    assert fold(feed(chain, ["a", "b"]) + chain.finish("stop")) == ("", "ab", [], "stop")
    assert f"the {place} parser failed" in caplog.text


HOLDERS = ["held ", "text", ". one. tw", "o. thr", "ee"]


@pytest.mark.parametrize("place", ["reasoning", "tools"])
@pytest.mark.parametrize("fed", range(len(HOLDERS) + 1))
def test_a_parser_that_fails_gives_back_what_it_held(place, fed):
    parsers = {"reasoning": None, "tools": None} | {place: Holder()}
    chain = Chain(0, Start(), parsers["reasoning"], parsers["tools"])
    events = feed(chain, [*HOLDERS[:fed], "!", " more"]) + chain.finish("stop")
    assert fold(events) == ("", "".join(HOLDERS[:fed]) + "! more", [], "stop")


@pytest.mark.parametrize("place", ["reasoning", "tools"])
@pytest.mark.parametrize("fed", range(len(HOLDERS) + 1))
def test_a_parser_that_fails_at_the_end_gives_back_what_it_held(place, fed):
    parsers = {"reasoning": None, "tools": None} | {place: Holder()}
    chain = Chain(0, Start(), parsers["reasoning"], parsers["tools"])
    assert fold(feed(chain, HOLDERS[:fed]) + chain.finish("stop")) == ("", "".join(HOLDERS[:fed]), [], "stop")


def test_reasoning_that_was_held_comes_back_as_text():
    chain = Chain(0, Start(), Holder(Reasoning), None)
    assert fold(feed(chain, ["so. the", "n", "!"]) + chain.finish("stop")) == ("so.", " then!", [], "stop")


def test_history_that_a_failing_parser_held_is_not_sent_again():
    chain = Chain(0, Start(history="what the client has"), Holder(), None)
    assert fold(feed(chain, ["!"]) + chain.finish("stop")) == ("", "!", [], "stop")


@pytest.mark.parametrize("texts", [["a [f", ":{} "], ["a ", "[", "f:{}"], ["a [f:{}] b [g:", "{"]])
@pytest.mark.parametrize("last", [["!"], []])
def test_a_call_that_a_failing_parser_held_comes_back_as_text(texts, last):
    chain = Chain(0, Start(), None, Bursting())
    events = feed(chain, [*texts, *last]) + chain.finish("stop")
    assert fold(events) == ("", "".join(texts + last), [], "stop")


def test_a_parser_that_fails_inside_a_call_ends_it_as_incomplete_and_gives_its_text_back():
    class Failing(Brackets):
        def feed(self, text):
            if "!" in text:
                raise RuntimeError("boom")
            return super().feed(text)

    chain = Chain(0, Start(), None, Failing(), mint=lambda name, number: "one")
    events = feed(chain, ["hi [f:{1", "2", "!"]) + chain.finish("stop")
    assert events == [
        TextDelta(0, "hi "),
        ToolCallStart(0, 0, "one", "f"),
        ToolCallDelta(0, 0, "{1"),
        ToolCallDelta(0, 0, "2"),
        ToolCallEnd(0, 0, complete=False),
        TextDelta(0, "[f:{12!"),
        Finish(0, "stop"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[f:{1}]", "tool_calls"), ("[f:{1", "stop"), ("[f:{1}] [g:{2", "stop"), ("[f:{1}] [g", "tool_calls")],
)
def test_a_stop_inside_a_call_does_not_ask_for_calls(text, reason):
    for split in splits([text]):
        chain = with_tools()
        events = feed(chain, split) + chain.finish("stop", "STOP")
        assert events[-1] == Finish(0, reason, "STOP")
        ends = [event.complete for event in events if isinstance(event, ToolCallEnd)]
        assert ends == ([True] * (len(ends) - 1) + [reason == "tool_calls"])


def test_a_parser_that_fails_at_the_end_still_ends():
    chain = Chain(0, Start(), Broken(on_feed=False), None)
    assert fold(feed(chain, ["a"]) + chain.finish("length")) == ("", "a", [], "length")


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_reasons_without_calls_stay_as_they_are(reason):
    assert chain_of("qwen3").finish(reason) == [Finish(0, reason)]
