"""Reasoning between delimiters: the spec's table, the field cases, and rule SPLIT for all of them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.events import ReasoningDelta, TextDelta
from smg.core.request import Tool
from smg.parsing.base import Start
from tests.parsing.runs import chain_of, feed, parse
from tests.splits import random_split, splits

pytestmark = pytest.mark.usefixtures("random_splits")

INSIDE = Start(prompt_tail="<|im_start|>assistant\n<think>\n")
CLOSED = Start(prompt_tail="<|im_start|>assistant\n<think>\n\n</think>\n\n")
OUTSIDE = Start(prompt_tail="<|im_start|>assistant\n")
TOOLS = (Tool("ping"),)


@pytest.mark.parametrize(
    ("start", "chunks", "reasoning", "content"),
    [
        (OUTSIDE, ["<think>r</think> and more."], "r", " and more."),
        (OUTSIDE, ["no markers"], "", "no markers"),
        (OUTSIDE, ["<think>cut"], "cut", ""),
        (INSIDE, ["no markers"], "no markers", ""),
        (INSIDE, ["r</think>c"], "r", "c"),
        (INSIDE, ["<think>r</think>c"], "r", "c"),
        (INSIDE, ["\n<think>r</think>c"], "r", "c"),
        (OUTSIDE, ["<think>a</think>  b"], "a", "  b"),
        (OUTSIDE, ["</", "answer"], "", "</answer"),
        (OUTSIDE, ["<thi", "nk>x"], "x", ""),
        (OUTSIDE, ["normal ", "<think>t"], "t", "normal "),
        (INSIDE, ["a</thi", "nk>b"], "a", "b"),
        (OUTSIDE, ["a <"], "", "a <"),
        (INSIDE, ["a </thin"], "a </thin", ""),
        (OUTSIDE, ["<think></think>b"], "", "b"),
        (OUTSIDE, ["<think> \n </think>b"], " \n ", "b"),
        (INSIDE, [" \n </think>b"], " \n ", "b"),
        (INSIDE, ["x < 10 and y > 5"], "x < 10 and y > 5", ""),
        (OUTSIDE, ["<think>a</think>b<think>c</think>d"], "ac", "bd"),
        (OUTSIDE, ["</think>\n\nanswer"], "", "\n\nanswer"),
        (CLOSED, ["answer"], "", "answer"),
        (OUTSIDE, ["  \n"], "", "  \n"),
        (INSIDE, ["  \n"], "  \n", ""),
        (OUTSIDE, [""], "", ""),
    ],
)
def test_table(start, chunks, reasoning, content):
    for split in splits(chunks):
        assert parse("qwen3", split, start) == (reasoning, content), split


def test_kimi_has_markers_of_its_own():
    for split in splits(["◁thi", "nk▷r◁/think▷c"]):
        assert parse("kimi", split, OUTSIDE) == ("r", "c")


def test_RP_01_marker_cut_after_its_first_character():
    for split in splits(["let me think<", "/think>\nanswer"]):
        assert parse("qwen3", split, INSIDE) == ("let me think", "\nanswer")
    chain = chain_of("qwen3", INSIDE)
    assert feed(chain, ["a <"]) == [ReasoningDelta(0, "a ")]
    assert feed(chain, [" b"]) == [ReasoningDelta(0, "< b")]


@pytest.mark.parametrize(
    ("text", "content"),
    [("Sure.<think>a</think>b", "Sure.b"), ("\n<think>a</think>b", "b"), (" <think>a</think>b", "b")],
)
def test_RP_02_text_before_the_opening_marker(text, content):
    for split in splits([text]):
        assert parse("qwen3", split, OUTSIDE) == ("a", content)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_thinking", "deepseek_r1"])
def test_RP_03_thinking_switched_off_by_the_prompt(name):
    text = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
    start = Start(prompt_tail=CLOSED.prompt_tail, thinking=False, tools=TOOLS)
    for split in splits([text]):
        assert parse(name, split, start) == ("", text)


@pytest.mark.parametrize(
    ("start", "inside"),
    [
        (Start(), True),
        (Start(thinking=True), True),
        (Start(thinking=False), False),
        (CLOSED, False),
        (INSIDE, True),
    ],
)
def test_a_family_that_always_thinks_starts_inside_unless_the_block_is_closed(start, inside):
    assert parse("deepseek_r1", ["x"], start) == (("x", "") if inside else ("", "x"))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("qwen3", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'),
        ("qwen3", "<tool_call>\n<function=ping>\n</function>\n</tool_call>"),
        ("glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>"),
        ("kimi_k25", "<|tool_calls_section_begin|><|tool_call_begin|>"),
    ],
)
def test_RP_04_a_call_ends_reasoning_that_was_not_closed(name, call):
    for split in splits(["I need data. ", call]):
        assert parse(name, split, Start(prompt_tail="<think>", tools=TOOLS)) == ("I need data. ", call)


@pytest.mark.parametrize(
    "text", ["use <tool_call> tags, then", "<tool_call>", "see <tool_call>\n\nfoo bar </tool_call>"]
)
def test_RP_04_the_bare_marker_in_a_sentence_does_not(text):
    start = Start(prompt_tail="<think>", tools=TOOLS)
    for split in splits([text]):
        assert parse("qwen3", split, start) == (text, "")


def test_RP_04_applies_only_when_tools_are_offered():
    text = 'a <tool_call>\n{"name": "ping"}'
    assert parse("qwen3", [text], INSIDE) == (text, "")


def test_RP_05_border_inside_one_delta():
    chunks = ["A final", " thought.</think>Answer starts."]
    for split in splits(chunks):
        assert parse("deepseek_r1", split, INSIDE) == ("A final thought.", "Answer starts.")
    assert feed(chain_of("deepseek_r1", INSIDE), chunks) == [
        ReasoningDelta(0, "A final"),
        ReasoningDelta(0, " thought."),
        TextDelta(0, "Answer starts."),
    ]


def test_RP_06_a_held_prefix_leaves_before_the_end():
    for split in splits(["x < y and a <th"]):
        assert parse("qwen3", split, OUTSIDE) == ("", "x < y and a <th")


def test_history_of_a_continued_message_is_read_but_not_repeated():
    tail = "<|im_start|>assistant\n"
    for split in splits(["ing</think>b"]):
        assert parse("qwen3", split, Start(prompt_tail=tail, history="<think>think")) == ("ing", "b")
        assert parse("qwen3", split, Start(prompt_tail=tail, history="<think>a</think>x")) == ("", "ing</think>b")


PIECES = ["<think>", "</think>", "<tool_call>", "<", "</", "think>", " ", "\n", "a", "{", "<function="]


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.randoms(use_true_random=False), st.booleans())
def test_any_cutting_gives_the_same_and_loses_nothing(pieces, generator, inside):
    text = "".join(pieces)
    start = Start(prompt_tail="<think>" if inside else "", tools=TOOLS)
    whole = parse("qwen3", [text], start)
    assert parse("qwen3", random_split(text, generator), start) == whole
    assert parse("qwen3", list(text), start) == whole
    for char in "a{":
        assert "".join(whole).count(char) == text.count(char)


def test_long_degenerate_output_is_parsed_in_linear_time():
    for unit in ("<", "<think></think>", "<tool_call>", " ", "</think"):
        text = unit * (1 << 16)
        seed = random.Random(1)
        chunks = random_split(text, seed)
        start = Start(prompt_tail="<think>", tools=TOOLS)
        assert parse("qwen3", chunks, start) == parse("qwen3", [text], start)
