"""The rules of the streaming contract (spec parsers 1 and 4), each where another implementation broke it."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg.core.events import TextDelta, ToolCallDelta, ToolCallStart
from smg.core.request import Tool
from smg.parsing.base import Start
from smg.parsing.engine import calls as limits
from smg.parsing.engine.grammar import Call, Grammar
from smg.parsing.engine.machine import Machine
from smg.parsing.table import REASONING, TOOLS
from tests.parsing.runs import STANDARD, Message, call, chain_of, feed, fold, whole_chain
from tests.parsing.writers import WRITERS
from tests.splits import random_split, splits

TOOL_NAMES = [row.name for row in TOOLS if row.factory is not None]
REASONING_NAMES = [row.name for row in REASONING if row.factory is not None]
CALL = [("get_weather", {"city": "Oslo", "days": 3})]


@pytest.mark.parametrize("family", TOOL_NAMES)
def test_S1_a_call_in_the_last_chunk_keeps_its_arguments(family):
    text = WRITERS[family](CALL)
    assert call(family, ["", text]).read() == CALL


def test_S2_the_end_releases_what_was_held():
    assert call("qwen", ["a <tool_", "cal"]).content == "a <tool_cal"


@pytest.mark.parametrize("family", ["deepseek", "deepseek31", "kimik2", "glm45_moe"])
def test_S3_the_beginning_of_a_marker_is_held_also_behind_text(family):
    text = WRITERS[family](CALL)
    chain = whole_chain(family, Start(tools=STANDARD))
    assert feed(chain, ["some text " + text[:8]]) == [TextDelta(0, "some text ")]
    assert fold(feed(chain, [text[8:]]))[2][0][0] == "get_weather"


@pytest.mark.parametrize("family", TOOL_NAMES)
def test_S4_ordinary_text_is_not_touched(family):
    text = "  ```py\nx = 1\n```\n\ntail  \n"
    for chunks in splits([text]):
        assert call(family, chunks) == Message(content=text)


def test_S5_separators_and_brackets_inside_strings_do_not_count():
    text = '<|python_tag|>{"name": "run", "parameters": {"cmd": "a; {b} [c"}};{"name": "ping", "parameters": {}}'
    for chunks in splits([text]):
        assert call("llama", chunks).read() == [("run", {"cmd": "a; {b} [c"}), ("ping", {})]


@pytest.mark.parametrize("family", ["minimax_m2", "qwen_xml"])
def test_S6_braces_in_values_add_none_to_the_arguments(family):
    calls = [("run", {"cmd": "f() { } }"})]
    text = WRITERS[family](calls)
    for chunks in splits([text]):
        assert call(family, chunks).read() == calls


@pytest.mark.parametrize("family", ["qwen_xml", "minimax_m2", "step3"])
def test_S7_no_arguments_are_an_empty_object(family):
    for chunks in splits([WRITERS[family]([("ping", {})])]):
        assert call(family, chunks).calls == (("ping", "{}"),)


@pytest.mark.parametrize("family", ["glm45_moe", "kimi_k3", "inkling", "cohere", "qwen", "kimik2", "gemma4", "mistral"])
def test_S8_arguments_are_passed_on_while_they_arrive(family):
    text = WRITERS[family]([("run", {"cmd": "x" * 400})])
    half = text[: text.index("x" * 400) + 200]
    chain = whole_chain(family, Start(tools=STANDARD))
    assert fold(feed(chain, [half]))[2] == [("run", '{"cmd": "' + "x" * 200)]


def test_S8_python_calls_are_passed_on_one_by_one():
    chain = whole_chain("pythonic", Start(tools=STANDARD))
    assert fold(feed(chain, ["[ping(), run(cmd="]))[2] == [("ping", "{}")]


@pytest.mark.parametrize("family", ["cohere", "step3"])
def test_S9_a_second_call_and_one_beside_the_end(family):
    calls = [("ping", {}), *CALL]
    for chunks in splits([WRITERS[family](calls)]):
        assert call(family, chunks).read() == calls


def test_S10_a_JSON_answer_does_not_disappear():
    for chunks in splits(['Here: {"total": 3, "items": [{"id": 1}]} ok?']):
        assert call("json", chunks).content == 'Here: {"total": 3, "items": [{"id": 1}]} ok?'


@pytest.mark.parametrize("family", [name for name in TOOL_NAMES if name != "inkling"])
@pytest.mark.parametrize("policy", [None, "forward", "drop", "text"])
def test_S11_unknown_names_follow_one_policy_however_the_text_is_cut(family, policy):
    text = WRITERS[family]([("nope", {"a": "b"})])
    start = Start(tools=STANDARD, unknown_tools=policy)
    whole = call(family, [text], start=start)
    for chunks in splits([text], pairs_below=0):
        assert call(family, chunks, start=start) == whole
    marked = family not in ("json", "llama", "pythonic", "sarashina", "xlam")
    if policy == "forward" or (policy is None and marked):
        assert whole.read() == [("nope", {"a": "b"})]
    elif policy == "drop" and marked:
        assert (whole.calls, whole.content, whole.finish) == ((), "", "stop")
    elif policy != "drop":
        assert whole.calls == ()
        assert "nope" in whole.content


def test_S12_parameters_keep_their_order():
    values = {key: key for key in "zyxabc"}
    for chunks in splits([WRITERS["minimax_m2"]([("run", values)])]):
        assert call("minimax_m2", chunks).calls == (("run", json.dumps(values)),)


def test_S13_entities_are_decoded_once():
    value = "&amp;quot; &lt;a&gt; &amp;lt; &#65; & &x"
    parameter = f'<parameter name="cmd">{value}</parameter>'
    text = f'<minimax:tool_call><invoke name="run">{parameter}</invoke></minimax:tool_call>'
    for chunks in splits([text]):
        assert call("minimax_m2", chunks).read() == [("run", {"cmd": "&quot; <a> &lt; A & &x"})]


def test_S14_names_with_hyphens_and_colons():
    for name in ("get-the-weather", "ns:get", "a.b-c"):
        text = WRITERS["kimik2"]([(name, {})])
        for chunks in splits([text]):
            assert call("kimik2", chunks).calls == ((name, "{}"),)


def test_JSON_arguments_come_as_the_model_wrote_them():
    text = '{ "a" : 1.50,\n "b": [1e5 ,"\\u00e9\\/"] }'
    for chunks in splits([f'<tool_call>{{"name": "ping", "arguments": {text}}}</tool_call>']):
        assert call("qwen", chunks).calls == (("ping", text),)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"a\nb\tc"', "a\nb\tc"),
        (r'"\d+ \x \'"', r"\d+ \x \'"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\ud83d"', "\ufffd"),
        (r'"\ude00x"', "\ufffdx"),
        (r'"\ud83d\n"', "\ufffd\n"),
        (r'"\u00e"', r"\u00e"),
        ("True", True),
        ("None", None),
        ("[1, 2,]", [1, 2]),
    ],
)
def test_slips_of_models_in_JSON_are_mended(written, value):
    for chunks in splits([f'<tool_call>{{"name": "ping", "arguments": {{"k": {written}}}}}</tool_call>']):
        message = call("qwen", chunks)
        assert message.read() == [("ping", {"k": value})]
        assert message.cut == ()


def test_arguments_before_the_name_wait_for_it():
    text = '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call>'
    for chunks in splits([text]):
        assert call("qwen", chunks).calls == (("get_weather", '{"city": "Oslo"}'),)


def test_arguments_that_break_off_leave_an_incomplete_call_and_the_rest_as_text():
    for chunks in splits(['<tool_call>{"name": "run", "arguments": {"cmd": oops}}</tool_call> end']):
        message = call("qwen", chunks)
        assert (message.calls, message.cut) == ((("run", '{"cmd": '),), (0,))
        assert message.content.startswith("oops}}")
        assert message.content.endswith(" end")


@pytest.mark.parametrize(
    ("family", "text", "arguments", "content"),
    [
        # A comma that nothing follows.
        ("qwen", '{"name": "run", "arguments": {"a": 1, oops}}', '{"a": 1', ", oops}}"),
        # Arguments that were printed as JSON twice.
        ("qwen", r'{"name": "run", "arguments": "{\"a\": 1}}x"}', '{"a": 1}', '}x"}'),
        ("qwen", r'{"name": "run", "arguments": "{\"a\": 1, \u0041\/"}', '{"a": 1', r', \u0041\/"}'),
        ("qwen", r'{"name": "run", "arguments": "{\"a\": tru"}', '{"a": ', 'tru"}'),
        ("json", '[{"name": "ping", "arguments":" {}}]', "{}", "}]"),
        # What looked like a key.
        (
            "glm45_moe",
            "<tool_call>run\n<arg_key>cmd</arg_key>\n<arg_value>ls</arg_value>\n<arg_key>b</arg_key>\noops",
            '{"cmd": "ls"',
            "\n<arg_key>b</arg_key>\noops",
        ),
        ("gemma4", '<|tool_call>call:run{cmd:<|"|>ls<|"|>, b<c:1}', '{"cmd": "ls"', ", b<c:1}"),
    ],
)
def test_what_follows_the_end_of_a_broken_call_comes_once(family, text, arguments, content):
    opener = "<tool_call>" if family == "qwen" else ""
    for chunks in splits([opener + text]):
        message = call(family, chunks)
        assert (message.calls[0][1], message.content, message.cut) == (arguments, content, (0,)), chunks


def test_at_most_256_calls():
    text = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n'
    message = call("qwen", [text * 258])
    assert len(message.calls) == limits.MAX_CALLS
    assert message.content.count("ping") == 2


def test_arguments_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "MAX_ARGUMENTS", 100)
    for chunks in splits([WRITERS["qwen"]([("run", {"cmd": "x" * 300})])]):
        message = call("qwen", chunks)
        assert message.cut == (0,)
        assert message.calls[0][1].count("x") + message.content.count("x") == 300


@pytest.mark.parametrize("depth", [100, 127])
def test_depth_that_is_read(depth):
    value = '{"a":' * depth + "1" + "}" * depth
    assert call("qwen", [f'<tool_call>{{"name": "run", "arguments": {value}}}</tool_call>']).calls == (("run", value),)


def test_depth_is_bounded():
    message = call("qwen", ['<tool_call>{"name": "run", "arguments": ' + '{"a":' * 1000])
    assert message.cut == (0,)
    assert (message.calls[0][1] + message.content).count('{"a":') == 1000


def test_a_wrapper_without_a_call_is_text_markers_included():
    text = "a <|tool_calls_section_begin|> b <|tool_calls_section_end|> c"
    for chunks in splits([text]):
        assert call("kimik2", chunks) == Message(content=text)


def test_a_parser_that_breaks_gives_everything_back(caplog):
    class Broken:
        def read(self, context):
            yield from context.cursor.visible()
            raise RuntimeError("boom")

    machine = Machine(Grammar((Call(Broken(), open=("<x>",)),)), Start())
    out = [piece for chunk in ("a <x", ">  b", " c") for piece in machine.feed(chunk)] + machine.finish()
    assert "".join(piece.text for piece in out) == "a <x>  b c"
    assert "a tool parser failed" in caplog.text


# Everything that means something to some parser, and some things that do not.
SOUP = sorted(
    {token for family in WRITERS for token in WRITERS[family]([("ping", {}), ("run", {"cmd": "a"})]).split()}
    | {
        "<",
        "</",
        ">",
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        "\\",
        ",",
        ":",
        "(",
        ")",
        "=",
        " ",
        "\n",
        "a",
        "ping",
        "<think>",
        "</think>",
    }
    | {
        "<tool_call>",
        "</tool_call>",
        '{"name": "ping", "arguments": {',
        "<function=ping>",
        "<parameter=cmd>",
        "<arg_key>",
    }
)


@pytest.mark.parametrize("family", TOOL_NAMES)
@given(pieces=st.lists(st.sampled_from(SOUP), max_size=14), generator=st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_marker_soup(family, pieces, generator):
    text = "".join(pieces)
    whole = call(family, [text])
    assert call(family, random_split(text, generator)) == whole
    assert call(family, list(text)) == whole
    for number, (_, arguments) in enumerate(whole.calls):
        if number not in whole.cut:
            assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize("family", TOOL_NAMES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_mutated_calls(family, data):
    text = WRITERS[family]([("run", {"cmd": "echo"}), ("ping", {})])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(SOUP)) + text[at + data.draw(st.integers(0, 5)) :]
    whole = call(family, [text])
    assert call(family, list(text)) == whole
    assert call(family, random_split(text, random.Random(1))) == whole
    for number, (_, arguments) in enumerate(whole.calls):
        if number not in whole.cut:
            assert isinstance(json.loads(arguments), dict)


# In these formats the only texts that count for nothing are markers.
LOSSLESS = (
    *("kimik2", "deepseek", "deepseek31", "step_audio_2", "functionary31", "functionary32", "plamo3", "apertus"),
    *("qwen_xml", "mimo", "seed_oss", "glm45_moe", "glm47_moe", "iquest", "iquest_coder", "telechat4", "solar_open2"),
    *("k2_horizon", "gemma4", "functiongemma", "json", "llama", "pythonic", "olmo3", "lfm2", "sarashina", "xlam"),
)


@pytest.mark.parametrize("family", TOOL_NAMES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_words_inside_of_calls_come_once(family, data):
    """No word is lost, nor told twice; in other formats some are, by attributes and members that mean nothing."""
    text = WRITERS[family]([("run", {"cmd": "echo"}), ("ping", {})])
    soup = st.sampled_from(["", *SOUP])
    words = [f"Zq{number}Z" for number in range(data.draw(st.integers(1, 3)))]
    for word in words:
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(soup) + word + data.draw(soup) + text[at:]
    message = call(family, [text], reason=data.draw(st.sampled_from(["stop", "length"])))
    out = "\n".join([message.content, *(part for one in message.calls for part in one)])
    for word in words:
        if word in text:
            assert out.count(word) in ((1,) if family in LOSSLESS else (0, 1)), text


@pytest.mark.parametrize("name", REASONING_NAMES)
@given(pieces=st.lists(st.sampled_from(SOUP), max_size=12), generator=st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_marker_soup_of_reasoning(name, pieces, generator):
    text = "".join(pieces)
    results = []
    for chunks in ([text], list(text), random_split(text, generator)):
        chain = chain_of(name, Start(tools=STANDARD))
        results.append(fold(feed(chain, chunks) + chain.finish("stop")))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("unit", ["<", "[", '{"', "```"])
@pytest.mark.parametrize("family", TOOL_NAMES)
def test_a_mebibyte_of_beginnings_is_text(family, unit):
    """Linear: a quadratic parser would take hours, and the time limit of the test is what fails then."""
    text = unit * ((1 << 20) // len(unit))
    assert call(family, [text]) == Message(content=text)


def test_long_arguments_in_small_chunks_are_not_read_twice():
    value = "y" * (1 << 15)
    for family in ("qwen", "glm45_moe", "pythonic", "minimax_m2", "gemma4"):
        text = WRITERS[family]([("run", {"cmd": value})])
        chunks = [text[at : at + 7] for at in range(0, len(text), 7)]
        assert call(family, chunks).read() == [("run", {"cmd": value})]


def test_an_undeclared_long_value_waits_without_being_copied_over_and_over():
    value = "z" * (1 << 16)
    text = WRITERS["glm45_moe"]([("run", {"free": value})])
    chunks = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert call("glm45_moe", chunks, start=Start(tools=(Tool("run"),))).read() == [("run", {"free": value})]


def test_arguments_of_one_batch_are_one_event():
    chain = whole_chain("qwen", Start(tools=STANDARD))
    events = feed(chain, ['<tool_call>{"name": "run", "arguments": {"cmd": "a", "b": [1, 2]}}</tool_call>'])
    assert [type(event) for event in events][:2] == [ToolCallStart, ToolCallDelta]
    assert sum(isinstance(event, ToolCallDelta) for event in events) == 1
