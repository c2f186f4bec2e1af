"""Markers by token first, by text second (spec parsers 1 to 3): what the vocabulary has as a token counts only as that
token, and the same characters in pieces are what the model says."""

import pytest

from smg.config.settings import ModelSettings
from smg.core.events import ReasoningDelta, TextDelta
from smg.core.request import GenerationRequest
from smg.core.stream import SEAL
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.choose import choose
from smg.parsing.markers import GAP, WORD, Seals, markers
from tests.parsing.runs import STANDARD, Past, answer, feed, message, whole_chain
from tests.parsing.tool_rows import ROWS
from tests.parsing.writers import WRITERS
from tests.splits import splits

CALLS = [("get_weather", {"city": "Oslo", "days": 3}), ("run", {"cmd": "a < b"})]
QWEN = Seals(frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"}))
# Whose calls count also without the marker in front.
OPTIONAL = {"qwen_xml", "mimo", "seed_oss", "sarashina"}
CALL = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'


def seals_of(tools: str, reasoning: str | None = None) -> Seals:
    """As if the vocabulary had all markers of the formats as tokens."""
    return Seals(frozenset(whole_chain(tools, Start(tools=STANDARD), reasoning).markers))


def chain(tools: str, seals: Seals, reasoning: str | None = None, **fields) -> Chain:
    return whole_chain(tools, Start(tools=STANDARD, seals=seals, **fields), reasoning)


def begins_with_a_token(tools: str) -> bool:
    return seals_of(tools).put(WRITERS[tools](CALLS)).startswith(SEAL)


def told(make, chunks):
    """The answer to ``chunks``, which is the same where text goes past the parsers."""
    whole = answer(make(), chunks)
    assert message(Past(make()).run(chunks)) == whole
    return whole


class TestSeals:
    def test_longest_texts_first(self):
        seals = Seals(frozenset({"<a>", "<a><b>"}))
        assert seals.put("x<a><b><a>") == f"x{SEAL}<a><b>{SEAL}<a>"
        assert seals.off(seals.put("x<a><b><a>")) == "x<a><b><a>"

    def test_hits_are_named_without_seals(self):
        legal = Seals(frozenset({"<a>", "<c>"})).markers("<a>", f"<b>{GAP}<c>", f"<d>{WORD}>")
        assert legal.heads == ("<b>", "<d>", SEAL)
        text = f"<a> {SEAL}<a> <b> {SEAL}<c> <d>e>"
        assert [text[hit.start : hit.end] for hit in hits(legal, text)] == [f"{SEAL}<a>", f"<b> {SEAL}<c>", "<d>e>"]
        assert [hit.marker for hit in hits(legal, text)] == ["<a>", f"<b>{GAP}<c>", f"<d>{WORD}>"]

    def test_a_wild_card_stands_for_the_tokens_that_it_can_spell(self):
        legal = Seals(frozenset({"<a:x>", "<b>"})).markers(f"<a{WORD}>", f"<c{WORD}>")
        text = f"<a:x> {SEAL}<a:x> <c:x>"
        assert [text[hit.start : hit.end] for hit in hits(legal, text)] == [f"{SEAL}<a:x>", "<c:x>"]

    def test_without_texts_they_are_the_plain_markers(self):
        assert Seals().markers("<a>").heads == markers("<a>").heads == ("<a>",)


def hits(legal, text):
    at, found = 0, []
    while (hit := legal.find(text, at, True)) is not None:
        found.append(hit)
        at = hit.end
    return found


@pytest.mark.parametrize("family", sorted(WRITERS))
def test_every_format_is_read_by_tokens(family):
    seals, text = seals_of(family), WRITERS[family](CALLS)
    expected = answer(whole_chain(family, Start(tools=STANDARD)), [text])
    assert expected.read() == CALLS
    for chunks in splits([seals.put(text)], count=5, pairs_below=0):
        assert told(lambda: chain(family, seals), chunks) == expected


@pytest.mark.parametrize("family", [name for name in sorted(WRITERS.keys() - OPTIONAL) if begins_with_a_token(name)])
def test_no_call_opens_where_its_marker_is_spelled_in_pieces(family):
    seals, text = seals_of(family), WRITERS[family](CALLS)
    got = told(lambda: chain(family, seals), [text])
    assert (got.content, got.calls) == (text, ())


@pytest.mark.full
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.content is not None or row.calls], ids=lambda row: f"{row.number}-{row.family}"
)
def test_the_tool_test_table_by_tokens(row):
    """Where all markers are tokens the table holds as it does by text."""
    tools = STANDARD if row.tools is None else row.tools
    seals = seals_of(row.family)
    expected = answer(whole_chain(row.family, Start(tools=tools)), row.chunks)
    for chunks in splits([seals.put("".join(row.chunks))], count=20, pairs_below=0):
        got = told(lambda: whole_chain(row.family, Start(tools=tools, seals=seals)), chunks)
        assert got == expected


class TestQuoting:
    def test_a_marker_that_the_model_quotes_is_text(self):
        text = f"Write {CALL} to call, and </think> to stop thinking."
        assert told(lambda: chain("qwen", QWEN, "qwen3"), [*text]).content == text

    def test_also_inside_reasoning(self):
        opener, closer = QWEN.put("<think>"), QWEN.put("</think>")
        for chunks in splits([f"{opener}Then comes </think>, or {CALL}?{closer}yes"], pairs_below=0):
            got = told(lambda: chain("qwen", QWEN, "qwen3"), chunks)
            assert (got.reasoning, got.content, got.calls) == (f"Then comes </think>, or {CALL}?", "yes", ())

    def test_and_inside_arguments(self):
        text = QWEN.put("<tool_call>") + "<function=run><parameter=cmd>echo '</tool_call>'</parameter></function>"
        got = told(lambda: chain("qwen_xml", QWEN), [*text, QWEN.put("</tool_call>")])
        assert got.read() == [("run", {"cmd": "echo '</tool_call>'"})]
        assert got.content == ""

    def test_a_token_that_opens_no_call_is_its_text(self):
        text = QWEN.put("the token <tool_call> and ") + "more"
        assert told(lambda: chain("qwen", QWEN), [text]).content == "the token <tool_call> and more"

    def test_a_token_inside_a_string_is_its_text(self):
        text = QWEN.put('<tool_call>{"name": "run", "arguments": {"cmd": "<think>"}}</tool_call>')
        for chunks in splits([text], pairs_below=0):
            assert told(lambda: chain("qwen", QWEN), chunks).read() == [("run", {"cmd": "<think>"})]

    def test_a_closer_in_pieces_does_not_close(self):
        text = QWEN.put("<tool_call>") + '{"name": "ping", "arguments": {}}</tool_call>'
        got = told(lambda: chain("qwen", QWEN), [text])
        assert (got.read(), got.content) == ([("ping", {})], "</tool_call>")

    def test_markers_of_several_tokens_need_those_that_are_tokens(self):
        seals = Seals(frozenset({"｜DSML｜"}))
        text = WRITERS["deepseek32"](CALLS)
        assert told(lambda: chain("deepseek32", seals), [text]).calls == ()
        assert told(lambda: chain("deepseek32", seals), [*seals.put(text)]).read() == CALLS


class TestPromptAndHistory:
    def test_a_prompt_that_opens_reasoning_has_no_seals(self):
        got = told(lambda: chain("qwen", QWEN, "qwen3", prompt_tail="<think>\n"), ["a</think>", QWEN.put("</think>b")])
        assert (got.reasoning, got.content) == ("a</think>", "b")

    def test_nor_has_a_message_that_is_continued(self):
        got = told(lambda: chain("qwen", QWEN, "qwen3", history="<think>a"), [QWEN.put("b</think>c")])
        assert (got.reasoning, got.content) == ("b", "c")


class TestCallsInsideReasoning:
    """Case RP-04: the token ends reasoning as such, its text only in front of a call."""

    TOKEN = QWEN.put("<tool_call>")

    def test_RP_04_a_token_ends_reasoning_whatever_follows(self):
        for chunks in splits([f"hm {self.TOKEN}no call"], pairs_below=0):
            got = told(lambda: chain("qwen", QWEN, "qwen3", prompt_tail="<think>"), chunks)
            assert (got.reasoning, got.content) == ("hm ", "<tool_call>no call")

    def test_RP_04_and_what_follows_does_not_wait_for_the_head_of_a_call(self):
        parser = chain("qwen", QWEN, "qwen3", prompt_tail="<think>")
        assert feed(parser, [f"hm {self.TOKEN}<function"]) == [
            ReasoningDelta(0, "hm "),
            TextDelta(0, "<tool_call><function"),
        ]

    def test_RP_04_the_words_do_not(self):
        text = f"hm, {CALL} or so"
        got = told(lambda: chain("qwen", QWEN, "qwen3", prompt_tail="<think>"), [text])
        assert (got.reasoning, got.content, got.calls) == (text, "", ())


class TestNativeFamilies:
    def test_inkling_hands_calls_on_with_their_seals(self):
        seals = seals_of("inkling", "inkling")
        text = "<|content_thinking|>hm<|end_message|>" + WRITERS["inkling"](CALLS)
        for chunks in splits([seals.put(text)], count=5, pairs_below=0):
            got = told(lambda: chain("inkling", seals, "inkling"), chunks)
            assert (got.reasoning, got.read()) == ("hm", CALLS)

    def test_harmony(self):
        seals = seals_of("harmony", "harmony")
        text = (
            "<|channel|>analysis<|message|>hm<|end|>"
            "<|start|>assistant to=functions.run<|channel|>commentary <|constrain|>json<|message|>"
        )
        chunks = [seals.put(text), '{"cmd": "<|call|>"}', seals.put("<|call|>")]
        got = told(lambda: chain("harmony", seals, "harmony"), chunks)
        assert (got.reasoning, got.read()) == ("hm", [("run", {"cmd": "<|call|>"})])

    def test_muse(self):
        seals = seals_of("muse_glimmer", "muse_glimmer")
        text = " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>"
        got = told(lambda: chain("muse_glimmer", seals, "muse_glimmer"), [seals.put(text), "say <|eom|>"])
        assert (got.reasoning, got.content) == ("hm", "say <|eom|>")

    def test_kimi_k3(self):
        seals = seals_of("kimi_k3", "kimi_k3")
        text = seals.put("<|close|>think<|sep|><|open|>response<|sep|>") + "say <|close|>response<|sep|>"
        got = told(lambda: chain("kimi_k3", seals, "kimi_k3"), ["hm", text])
        assert (got.reasoning, got.content) == ("hm", "say <|close|>response<|sep|>")


class TestChoosing:
    def test_the_added_tokens_among_the_markers(self):
        parsers = choose(ModelSettings(), "qwen3", added={"<think>", "<tool_call>", "<|im_start|>"})
        assert parsers.seals == Seals(frozenset({"<think>", "<tool_call>"}))

    def test_none_by_setting_or_without_a_vocabulary(self):
        assert choose(ModelSettings(marker_match="text"), "qwen3", added={"<think>"}).seals == Seals()
        assert choose(ModelSettings(), "qwen3").seals == Seals()

    def test_a_chain_has_what_its_start_says(self):
        request = GenerationRequest("chat", "m", tools=[*STANDARD])
        parsers = choose(ModelSettings(), "qwen3", added={"<tool_call>"})
        assert parsers.chain(request, 0, Start(tools=STANDARD, seals=parsers.seals)).seals == parsers.seals
