"""Every reasoning format, by rule SPLIT."""

import pytest

from smg.parsing.base import Start
from smg.parsing.table import REASONING
from tests.parsing.runs import STANDARD, call, parse, row
from tests.splits import splits

OUTSIDE = Start(prompt_tail="<|im_start|>assistant\n")

# (format, start, text, reasoning, content)
CASES = [
    ("base", OUTSIDE, "<think>r</think> c", "r", " c"),
    (
        "gpt_oss",
        Start(prompt_tail="<|start|>assistant"),
        "<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>c",
        "r",
        "c",
    ),
    ("deepseek_r1", Start(), "r</think>c", "r", "c"),
    ("deepseek_r1", Start(), "<think>r</think>c", "r", "c"),
    ("deepseek_v31", OUTSIDE, "</think>c", "", "c"),
    ("deepseek_v4", Start(prompt_tail="<think>"), "r</think>c", "r", "c"),
    ("qwen3", OUTSIDE, "<think>r</think>c", "r", "c"),
    ("qwen3_thinking", Start(), "r</think>c", "r", "c"),
    ("glm45", OUTSIDE, "\n<think>r</think>\nc", "r", "\nc"),
    ("kimi", OUTSIDE, "◁think▷r◁/think▷c", "r", "c"),
    ("kimi_k25", Start(prompt_tail="<think>"), "r</think>c", "r", "c"),
    ("kimi_thinking", Start(), "r</think>c", "r", "c"),
    ("step3", Start(), "r</think>c", "r", "c"),
    ("step3p5", Start(), "r</think>\nc", "r", "c"),
    ("minimax", Start(), "r</think>c", "r", "c"),
    ("minimax_append", Start(), "r</think>c", "", "<think>r</think>c"),
    ("minimax_m3", OUTSIDE, "<mm:think>r</mm:think>c", "r", "c"),
    ("minimax_m3", OUTSIDE, "</mm:think>c", "", "c"),
    ("nano_v3", Start(prompt_tail="<think>\n"), "r</think>c", "r", "c"),
    ("cohere_cmd", OUTSIDE, "<|START_THINKING|>r<|END_THINKING|><|START_RESPONSE|>c<|END_RESPONSE|>", "r", "c"),
    ("mistral", OUTSIDE, "[THINK]r[/THINK]c", "r", "c"),
    ("mistral", OUTSIDE, "<think>r</think>c", "r", "c"),
    ("granite", OUTSIDE, "Here is my thought process: r\nHere is my response: c", " r\n", " c"),
    (
        "granite",
        OUTSIDE,
        "Here's my thought process:rHere's my response:c Here is my thought process:",
        "r",
        "c Here is my thought process:",
    ),
    ("granite_thinking", OUTSIDE, "<think>r</think>\n\nc", "r", "\nc"),
    ("hunyuan_a13b", OUTSIDE, "<think>\nr\n</think>\n<answer>\nc\n</answer>", "r", "c"),
    ("hy_v3", OUTSIDE, "<think>r</think>c", "r", "c"),
    ("ernie45", Start(), "r</think>\n<response>\nc\n</response>", "r", "c"),
    ("seed_oss", OUTSIDE, "<seed:think>r</seed:think>c", "r", "c"),
    ("gemma4", OUTSIDE, "<|channel>thought\nr<channel|>c", "r", "c"),
    ("apertus", OUTSIDE, "<|inner_prefix|>r<|inner_suffix|>c", "r", "c"),
    ("apriel", Start(), "r[BEGIN FINAL RESPONSE]c[END FINAL RESPONSE]", "r", "c"),
    ("plamo3", OUTSIDE, "<|plamo:begin_think:plamo|>r<|plamo:end_think:plamo|>c", "r", "c"),
    ("solar_open2", Start(prompt_tail="<|think:start|>"), "r<|think:end|>c", "r", "c"),
    ("longcat", Start(prompt_tail="<longcat_think>\n"), "r</longcat_think>c", "r", "c"),
    ("pangu", Start(), "[unused16]r[unused17]c", "r", "c"),
    ("pangu", Start(prompt_tail="<think>"), "r</think>c", "r", "c"),
    ("solar_open", OUTSIDE, "<|think|>r<|end|><|begin|>assistant<|content|>c<|end|>", "r", "c"),
    # Inkling's typed blocks.
    (
        "inkling",
        OUTSIDE,
        "<|content_thinking|>r<|end_message|><|message_model|>x<|content_text|>c<|end_message|>",
        "r",
        "c",
    ),
    ("inkling", OUTSIDE, "<|content_invoke_tool_text|>hidden<|end_message|>c", "", "c"),
    ("inkling", OUTSIDE, "plain", "", "plain"),
    (
        "inkling",
        OUTSIDE,
        "<|content_text|>a<|end_message|><|content_invoke_tool_json|>{}<|end_message|>",
        "",
        "a<|content_invoke_tool_json|>{}<|end_message|>",
    ),
    # Kimi K3's channels.
    (
        "kimi_k3",
        Start(prompt_tail="<|open|>think<|sep|>"),
        "r<|close|>think<|sep|><|open|>response<|sep|>c<|close|>response<|sep|>",
        "r",
        "c",
    ),
    (
        "kimi_k3",
        Start(),
        "<|open|> think <|sep|>r<|close|>think<|sep|><|open|>response<|sep|>c<|close|>response<|sep|>",
        "r",
        "c",
    ),
    ("kimi_k3", Start(prompt_tail="<|open|>response<|sep|>"), "answer<|close|>response<|sep|>", "", "answer"),
    (
        "kimi_k3",
        Start(prompt_tail="<|open|>think<|sep|>"),
        "r<|open|>tools<|sep|>x<|close|>tools<|sep|>",
        "r",
        "<|open|>tools<|sep|>x<|close|>tools<|sep|>",
    ),
    ("kimi_k3", Start(thinking=False), "answer<|close|>response<|sep|><|end_of_msg|>", "", "answer"),
    # Muse's messages, by whom they are to.
    (
        "muse_glimmer",
        Start(prompt_tail="<|start|>assistant"),
        " to=self<|message|>r<|eom|><|start|>assistant to=user<|message|>c<|eot|>",
        "r",
        "c",
    ),
    (
        "muse_glimmer",
        Start(prompt_tail="<|start|>assistant to=self<|message|>"),
        "a<|eom|><|start|>assistant to=self<|message|>b to=tool.f<|message|><atem:function_calls>x<|eot|>",
        "ab",
        "<atem:function_calls>x",
    ),
    ("muse_glimmer", OUTSIDE, "plain to=x and more", "", "plain to=x and more"),
    ("k2_horizon", Start(prompt_tail="<ifm|think_fast>"), "r</ifm|think_fast>c", "r", "c"),
]


def test_every_format_has_a_case():
    assert {one.name for one in REASONING if one.factory is not None} == {name for name, *_ in CASES}


@pytest.mark.parametrize(("name", "start", "text", "reasoning", "content"), CASES)
def test_case(name, start, text, reasoning, content):
    for chunks in splits([text]):
        assert parse(name, chunks, start) == (reasoning, content), chunks


@pytest.mark.full
@pytest.mark.parametrize(("name", "start", "text", "reasoning", "content"), CASES)
def test_case_with_many_splits(name, start, text, reasoning, content):
    for chunks in splits([text], count=200):
        assert parse(name, chunks, start) == (reasoning, content), chunks


@pytest.mark.parametrize("name", sorted({name for name, *_ in CASES} - {"minimax_append"}))
def test_plain_text_is_content_or_reasoning_and_whole(name):
    text = "x < 10 and y > 5\n\n[a] {b} </ tail "
    for chunks in splits([text]):
        assert "".join(parse(name, chunks, Start(thinking=False))) == text


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (
            "kimi_k3",
            "r<|close|>think<|sep|><|open|>response<|sep|>c<|close|>response<|sep|><|open|>tools<|sep|><|open|>call "
            'tool="run" index="1"<|sep|><|open|>argument key="cmd" type="string"<|sep|>ls<|close|>argument<|sep|>'
            "<|close|>call<|sep|><|close|>tools<|sep|><|end_of_msg|>",
        ),
        (
            "inkling",
            "<|content_thinking|>r<|end_message|><|message_model|><|content_text|>c<|end_message|>"
            '<|message_model|>run<|content_invoke_tool_json|>{"name": "run", "args": {"cmd": "ls"}}<|end_message|>',
        ),
    ],
)
def test_channels_with_thinking_an_answer_and_a_call(family, text):
    for chunks in splits([text]):
        message = call(family, chunks, reasoning=family)
        assert (message.reasoning, message.content) == ("r", "c")
        assert message.read() == [("run", {"cmd": "ls"})]


def test_a_new_parser_knows_nothing_of_the_last_one():
    factory = row(REASONING, "qwen3").factory
    assert factory is not None
    first = factory(Start(tools=STANDARD))
    first.feed("<think>open")
    assert [type(piece).__name__ for piece in factory(Start(tools=STANDARD)).feed("text")] == ["Content"]
