"""MiniMax M3's elements, by the caller's schema and without one; K2 Horizon's three spellings; PLaMo's tokens."""

import json

import pytest

from smg.core.request import Tool
from smg.parsing.base import Start
from smg.parsing.detect import detect
from smg.parsing.table import REASONING, TOOLS
from tests.parsing.runs import call, reasoning_parser, row
from tests.parsing.writers import WRITERS
from tests.splits import splits

pytestmark = pytest.mark.usefixtures("random_splits")

S = "]<]minimax[>["
TOOL = Tool(
    "f",
    parameters={
        "properties": {
            "list": {"type": "array", "items": {"type": "integer"}},
            "strings": {"type": "array", "items": {"type": "string"}},
            "o": {"type": "object", "properties": {"s": {"type": "string"}, "deep": {"$ref": "#/$defs/d"}}},
            "maybe": {"anyOf": [{"type": "array"}, {"type": "null"}]},
            "text": {"type": "string"},
        },
        "$defs": {"d": {"type": "object", "additionalProperties": {"type": "number"}}},
    },
)


def element(name, inner):
    return f"{S}<{name}>{inner}{S}</{name}>"


def read(body, reason="stop"):
    text = f'{S}<tool_call>\n{S}<invoke name="f">{body}'
    if reason == "stop":
        text += f"{S}</invoke>\n{S}</tool_call>"
    found = {call("minimax_m3", chunks, start=Start(tools=[TOOL]), reason=reason) for chunks in splits([text])}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (element("list", element("item", "1") + element("item", "2")), {"list": [1, 2]}),
        (element("list", element("x", "1")), {"list": [1]}),
        (element("list", ""), {"list": []}),
        (element("maybe", "null"), {"maybe": None}),
        (element("strings", element("item", "1")), {"strings": ["1"]}),
        (element("list", "[1, 2]"), {"list": [1, 2]}),
        (element("o", element("s", "5") + element("deep", element("a", "1.5"))), {"o": {"s": "5", "deep": {"a": 1.5}}}),
        (element("o", ""), {"o": {}}),
        (element("text", " a < b </x>\n]<] "), {"text": " a < b </x>\n]<] "}),
        (element("free", "5") + element("free", "x"), {"free": [5, "x"]}),
        (element("free", element("item", "a")), {"free": ["a"]}),
        (element("free", element("a", "1") + element("a", "2") + element("b", "3")), {"free": {"a": [1, 2], "b": 3}}),
        (element("free", "note " + element("a", "1")), {"free": {"a": 1, "$text": "note "}}),
        ("\n" + element("text", "a") + "\n " + element("list", ""), {"text": "a", "list": []}),
        ("", {}),
    ],
)
def test_M3_elements(body, expected):
    message = read(body)
    assert (message.read(), message.content, message.finish) == ([("f", expected)], "", "tool_calls")


def test_M3_a_call_that_is_cut_off_closes_nothing():
    message = read(element("text", "a") + f"{S}<text2>b", "length")
    assert (message.calls, message.finish, message.cut) == ((("f", '{"text": "a", "text2": "b'),), "length", (0,))
    for cut, arguments in (
        (element("text", "a"), '{"text": "a"'),
        (f"{element('text', 'a')}{S}<o>{S}<s>b", '{"text": "a", "o": {"s": "b'),
        (
            f"{S}<o>{element('s', '5')}{S}<deep>{element('a', '1.5')}{S}<b>2",
            '{"o": {"s": "5", "deep": {"a": 1.5, "b": "2',
        ),
        (f"{S}<list>{element('item', '1')}{S}<item>2", '{"list": [1, "2'),
        (f"{S}<free>note {S}<a>1", '{"free": {"$text": "note ", "a": "1'),
    ):
        message = read(cut, "length")
        assert (message.calls, message.content, message.cut) == ((("f", arguments),), "", (0,))


def test_M3_what_is_no_element_is_text_behind_a_call_that_is_cut():
    message = read(f"{element('text', 'a')}{S}</x>", "stop")
    assert (message.calls, message.cut) == ((("f", '{"text": "a"'),), (0,))
    assert message.content.startswith(f"{S}</x>")
    message = read(f"{S}<o>{element('s', '5')}{S}</x>")
    assert (message.calls, message.cut) == ((("f", '{"o": {"s": "5'),), (0,))
    assert message.content.startswith(f"{S}</x>")


def test_M3_nesting_is_bounded():
    deep = f"{S}<a>" * 200 + "1" + f"{S}</a>" * 200
    assert read(deep).cut == (0,)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("f<ifm|arg_key>a</ifm|arg_key><ifm|arg_value>5</ifm|arg_value>", {"a": 5}),
        (
            "f<ifm|arg_key>a</ifm|arg_key><ifm|arg_type>string</ifm|arg_type><ifm|arg_value>5</ifm|arg_value>",
            {"a": "5"},
        ),
        ('\n{"name": "f", "arguments": {"a": "x"}}\n', {"a": "x"}),
        ("f", {}),
    ],
)
def test_K2_Horizon_in_its_three_spellings(inner, expected):
    text = f"<ifm|tool_calls><ifm|tool_call>{inner}</ifm|tool_call></ifm|tool_calls>"
    for chunks in splits([text]):
        message = call("k2_horizon", chunks, start=Start(tools=[Tool("f")]))
        assert (message.read(), message.content) == ([("f", expected)], "")


def test_the_tokens_that_PLaMo_s_markers_are_made_of_are_shown_to_its_parsers():
    parts = {"<|plamo:begin_", "<|plamo:end_", ":plamo|>"}
    assert parts <= set(reasoning_parser("plamo3", Start()).markers)
    factory = row(TOOLS, "plamo3").factory
    assert factory is not None
    assert parts <= set(factory(Start()).markers)


@pytest.mark.parametrize(
    ("template", "reasoning", "tools"),
    [
        ("x ]<]minimax[>[<tool_call> y", "minimax_m3", "minimax_m3"),
        ("x <mm:think> y", "minimax_m3", "minimax_m3"),
        ("x <ifm|think> <ifm|tool_call> y", "k2_horizon", "k2_horizon"),
        ("x <|plamo:begin_tool_requests:plamo|> y", "plamo3", "plamo3"),
        ('x <atem:invoke name="f"> y', "muse_glimmer", "muse_glimmer"),
    ],
)
def test_templates_tell_the_family(template, reasoning, tools):
    assert detect(template, frozenset()) == (reasoning, tools)


@pytest.mark.parametrize(
    ("family", "tail"),
    [
        ("minimax_m3", "<mm:think>"),
        ("plamo3", "<|plamo:begin_think:plamo|>"),
        ("k2_horizon", "<ifm|think_faster>"),
        ("muse_glimmer", "<|start|>assistant to=self<|message|>"),
    ],
)
def test_RP_04_a_call_ends_reasoning_that_was_not_closed(family, tail):
    header = " to=ping<|message|>" if family == "muse_glimmer" else ""
    block = WRITERS[family]([("ping", {})])
    start = Start(prompt_tail=tail, tools=[Tool("ping")])
    for chunks in splits(["I need data.", header + block], pairs_below=0):
        message = call(family, chunks, start=start, reasoning=family)
        assert (message.reasoning, json.loads(message.calls[0][1])) == ("I need data.", {})
        assert message.content == ""


def test_every_family_of_the_tables_has_one_row_in_each():
    names = {"minimax_m3", "plamo3", "k2_horizon", "muse_glimmer"}
    assert names <= {one.name for one in REASONING}
    assert names <= {one.name for one in TOOLS}
