"""Field cases of tool and reasoning parsing, by rule SPLIT."""

import json
import random
import re

import pytest

from smg.core.batch import TokenLogprobs
from smg.core.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from smg.core.request import Message as Turn
from smg.core.request import Tool, ToolCall
from smg.core.stream import RowOutput
from smg.parsing.base import Start
from smg.parsing.call_ids import recalled
from smg.parsing.chain import Chain
from smg.parsing.forced import Forced
from smg.parsing.table import TOOLS
from tests.parsing.runs import STANDARD, Message, call, feed, fold, row, whole_chain
from tests.splits import splits

pytestmark = pytest.mark.usefixtures("random_splits")

OPENED = Start(prompt_tail="<|im_start|>assistant\n<think>\n", tools=STANDARD)
CLOSED = Start(prompt_tail="<|im_start|>assistant\n<think>\n\n</think>\n\n", thinking=False, tools=STANDARD)


def hermes(*objects):
    return "\n".join(f"<tool_call>\n{item}\n</tool_call>" for item in objects)


def weather(city, key="arguments"):
    return json.dumps({"name": "get_weather", key: {"city": city}})


def ids_of(tools, text, start=None):
    return [
        event.id
        for event in feed(whole_chain(tools, start or Start(tools=STANDARD)), [text])
        if isinstance(event, ToolCallStart)
    ]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("hermes", hermes(weather("Oslo"), weather("Rome"))),
        ("qwen", hermes(weather("Oslo"), weather("Rome"))),
        ("llama3_json", f"{weather('Oslo', 'parameters')}; {weather('Rome', 'parameters')}"),
        (
            "glm45",
            "".join(
                f"<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>{city}</arg_value>\n</tool_call>"
                for city in ("Oslo", "Rome")
            ),
        ),
    ],
)
def test_TP_01_two_complete_calls_in_one_delta(family, text):
    for chunks in splits([text]):
        message = call(family, chunks)
        assert message.read() == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})]
        assert (message.content, message.finish) == ("", "tool_calls")


PING = '{"name": "ping", "arguments": {}}'


@pytest.mark.parametrize(
    ("family", "text", "count"),
    [
        ("hermes", f"<tool_call>\n{PING}\n</tool_call>", 1),
        ("mistral", f"[TOOL_CALLS] [{PING}, {PING}]", 2),
        ("qwen3_coder", "<tool_call>\n<function=ping>\n</function>\n</tool_call>", 1),
        ("glm45", "<tool_call>ping\n</tool_call>", 1),
        (
            "deepseek_v32",
            '<｜DSML｜function_calls>\n<｜DSML｜invoke name="ping">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
            1,
        ),
        ("hermes", '<tool_call>\n{"name": "ping"}\n</tool_call>', 1),
        ("hermes", '<tool_call>\n{"name": "ping", "arguments": null}\n</tool_call>', 1),
        ("hermes", '<tool_call>\n{"name": "ping", "arguments": ""}\n</tool_call>', 1),
    ],
)
def test_TP_02_calls_with_empty_arguments(family, text, count):
    for chunks in splits([text]):
        assert call(family, chunks) == Message(calls=(("ping", "{}"),) * count, finish="tool_calls")


def test_TP_03_half_a_name_is_never_announced():
    given = ['<tool_call>{"name": "', "sea", 'rch", "arg', 'uments": {"query": "x"}}</tool_call>']
    for chunks in splits(given):
        events = feed(whole_chain("hermes", Start(tools=STANDARD)), chunks)
        assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["search"]
        assert fold(events)[2] == [("search", '{"query": "x"}')]
    chain = whole_chain("hermes", Start(tools=STANDARD))
    assert feed(chain, given[:2]) == []


def test_TP_04_braces_of_an_XML_style_call():
    given = ["<tool_call>\n<function=run>\n<parameter=cmd>\n", "echo hi", "\n</parameter>\n</function>\n</tool_call>"]
    for chunks in splits(given):
        assert call("qwen3_coder", chunks).calls == (("run", '{"cmd": "echo hi"}'),)
    # The value is passed on while it arrives.
    chain = whole_chain("qwen3_coder", Start(tools=STANDARD))
    assert [type(event) for event in feed(chain, given[:2])] == [ToolCallStart, ToolCallDelta, ToolCallDelta]


def test_TP_05_types_come_from_the_schema():
    kinds = {"id": "integer", "code": "string", "flag": "boolean", "tags": "array", "opt": "object"}
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    tools = (Tool("f", parameters={"type": "object", "properties": properties}),)
    pairs = [
        ("id", "9007199254740993"),
        ("code", "007"),
        ("flag", "true"),
        ("tags", '["a"]'),
        ("opt", '{"k": 1}'),
        ("free", "123abc"),
        ("nan", "NaN"),
        ("inf", "Infinity"),
        ("hex", "0x10"),
        ("oct", "01"),
        ("list", "[1]"),
    ]
    inner = "\n".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>" for key, value in pairs)
    expected = (
        '{"id": 9007199254740993, "code": "007", "flag": true, "tags": ["a"], "opt": {"k": 1}, "free": "123abc", '
        '"nan": "NaN", "inf": "Infinity", "hex": "0x10", "oct": "01", "list": [1]}'
    )
    for chunks in splits([f"<tool_call>f\n{inner}\n</tool_call>"]):
        assert call("glm45", chunks, start=Start(tools=tools)).calls == (("f", expected),)


@pytest.mark.parametrize("thinking", [True, False])
def test_TP_06_a_native_call_under_a_forced_choice(thinking):
    text = (
        "I should look it up<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    for chunks in splits([text]):
        message = call("kimi_k2", chunks, start=OPENED if thinking else CLOSED, reasoning="kimi_k25")
        assert message.read() == [("get_weather", {"city": "Oslo"})]
        said = "I should look it up"
        assert (message.reasoning, message.content) == ((said, "") if thinking else ("", said))
        assert message.finish == "tool_calls"


def kimi(ident):
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>{ident}<|tool_call_argument_begin|>"
        '{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>'
    )


def test_TP_07_ids_of_kimi():
    assert ids_of("kimi_k2", kimi("functions.get_weather:3")) == ["functions.get_weather:3"]
    assert ids_of("kimi_k2", kimi("functionsget_weather4")) == ["functions.get_weather:0"]
    assert ids_of("kimi_k2", kimi("functions.get_weather:0") + kimi("functionsget_weather4")) == [
        "functions.get_weather:0",
        "functions.get_weather:1",
    ]
    for chunks in splits([kimi("functionsget_weather4")]):
        assert call("kimi_k2", chunks).read() == [("get_weather", {"city": "Oslo"})]


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("functions.get_weather:3", "functions.get_weather:3"),
        ("functionsget_weather4", "functions.get_weather:4"),
        ("functions_get_weather_4", "functions.get_weather:4"),
        ("call_0a1b2c3d", "functions.get_weather:1"),
        ("", "functions.get_weather:1"),
    ],
)
def test_TP_07_the_history_of_kimi_has_its_own_ids(given, own):
    messages = [
        Turn("assistant", tool_calls=[ToolCall("functions.ping:0", "ping", "{}"), ToolCall(given, "get_weather", "")]),
        Turn("tool", "rain", tool_call_id=given),
        Turn("tool", "pong", tool_call_id="functions.ping:0"),
    ]
    assistant, rain, pong = recalled(messages, row(TOOLS, "kimi_k2").recall)
    assert [call.id for call in assistant.tool_calls] == ["functions.ping:0", own]
    assert (rain.tool_call_id, pong.tool_call_id) == (own, "functions.ping:0")
    assert messages[1].tool_call_id == given, "the request itself stays as it is"


def test_TP_08_the_history_of_mistral_has_ids_of_nine_characters():
    messages = [
        Turn("assistant", tool_calls=[ToolCall("call_0a1b2c3d", "ping", ""), ToolCall("aB3dE6gH9", "ping", "")]),
        Turn("tool", "pong", tool_call_id="call_0a1b2c3d"),
    ]
    assistant, result = recalled(messages, row(TOOLS, "mistral").recall)
    first, second = (call.id for call in assistant.tool_calls)
    assert re.fullmatch("[A-Za-z0-9]{9}", first)
    assert (result.tool_call_id, second) == (first, "aB3dE6gH9")
    assert recalled(messages, row(TOOLS, "mistral").recall)[0].tool_calls[0].id == first, "the same in every turn"


def test_TP_08_mistral_names_and_ids():
    given = ["[TOOL_CALLS]", "get_", "weather", "[ARGS]", '{"', "city", '": "Pa', 'ris"}', "[TOOL_CALLS]ping[ARGS]{}"]
    for chunks in splits(given):
        message = call("mistral", chunks)
        assert message.calls == (("get_weather", '{"city": "Paris"}'), ("ping", "{}"))
        assert message.content == ""
    for text in ("".join(given), f"[TOOL_CALLS] [{PING}, {PING}]"):
        ids = ids_of("mistral", text)
        assert len(set(ids)) == 2
        assert all(re.fullmatch("[A-Za-z0-9]{9}", one) for one in ids)
    assert ids_of("mistral", "[TOOL_CALLS]ping[CALL_ID]aB3dE6gH9[ARGS]{}") == ["aB3dE6gH9"]


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]ping[ARGS]{}',
        '[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "ping", "arguments": {}}]',
    ],
)
def test_TP_08_the_same_under_a_forced_choice(text):
    native = row(TOOLS, "mistral")
    for chunks in splits([text]):
        start = Start(tools=STANDARD)
        chain = Chain(0, start, None, Forced(None, native.factory)(start), mint=native.mint)
        events = [*feed(chain, chunks), *chain.finish("stop")]
        assert fold(events) == ("", "", [("get_weather", '{"city": "Paris"}'), ("ping", "{}")], "tool_calls")
        ids = [event.id for event in events if isinstance(event, ToolCallStart)]
        assert all(re.fullmatch("[A-Za-z0-9]{9}", one) for one in ids)


def test_TP_07_the_same_form_under_a_forced_choice():
    native = row(TOOLS, "kimi_k2")
    start = Start(tools=STANDARD)
    chain = Chain(0, start, None, Forced(STANDARD[0], native.factory)(start), mint=native.mint, earlier=2)
    events = feed(chain, ['{"city": "Oslo"}'])
    assert [event.id for event in events if isinstance(event, ToolCallStart)] == ["functions.get_weather:2"]


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('[search(query="hello]world")]', [("search", {"query": "hello]world"})], ""),
        ("[search(query='it\\'s [ok]'), ping()]", [("search", {"query": "it's [ok]"}), ("ping", {})], ""),
        ("see [O'Reilly] for more", [], "see [O'Reilly] for more"),
        ('[search(query="a")] and text after', [("search", {"query": "a"})], " and text after"),
    ],
)
def test_TP_09_brackets_in_quotes(text, calls, content):
    for chunks in splits([text]):
        message = call("pythonic", chunks)
        assert (message.read(), message.content) == (calls, content)


@pytest.mark.parametrize(
    "given",
    [
        ['{"answer": ', "42}"],
        ['{"name": "Bob", "age": 3}'],
        ['{"name": "delete_all", "parameters": {}}'],
        ['{"name": "get_wea'],
        ['{"answer": {"name": "get_weather", "parameters": {}}}'],
        ['{"name": "get_weather", "age": 3}'],
    ],
)
@pytest.mark.parametrize("family", ["llama3_json", "json"])
def test_TP_10_JSON_that_is_no_call(family, given):
    for chunks in splits(given):
        assert call(family, chunks, start=Start(tools=STANDARD[:1])) == Message(content="".join(given))


def test_TP_10_text_is_released_as_soon_as_it_cannot_be_a_call():
    chain = whole_chain("llama3_json", Start(tools=STANDARD))
    assert feed(chain, ['{"answer": ']) == [TextDelta(0, '{"answer": ')]


def test_TP_10_undeclared_names_are_calls_if_the_operator_says_so():
    for chunks in splits(['{"name": "delete_all", "parameters": {}}']):
        message = call("llama3_json", chunks, start=Start(tools=STANDARD, unknown_tools="forward"))
        assert message.calls == (("delete_all", "{}"),)


@pytest.mark.parametrize(("family", "block"), [("deepseek_v32", "function_calls"), ("deepseek_v4", "tool_calls")])
def test_TP_11_DSML_cut_anywhere(family, block):
    text = (
        f'<｜DSML｜{block}>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Tokyo'
        '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        f'<｜DSML｜invoke name="ping">\n</｜DSML｜invoke>\n</｜DSML｜{block}>'
    )
    for chunks in splits([text]):
        message = call(family, chunks)
        assert message.calls == (("get_weather", '{"city": "Tokyo", "days": 5}'), ("ping", "{}"))
        assert message.content == ""


def test_TP_12_text_after_a_call():
    for chunks in splits(["Checking. ", f"<tool_call>\n{PING}\n</tool_call>", "\nDone."]):
        assert call("hermes", chunks) == Message("", "Checking. \nDone.", (("ping", "{}"),), "tool_calls")


@pytest.mark.parametrize("stop", ["", "plain"])
def test_OA_02_an_end_without_a_reason(stop):
    """The pipeline calls such an end a stop; with calls it is tool_calls."""
    text = stop or "<tool_call>\n<function=ping>\n</function>\n</tool_call>"
    for chunks in splits([text]):
        assert call("qwen3_coder", chunks, reason="stop").finish == ("stop" if stop else "tool_calls")


def test_OA_05_the_token_limit_inside_a_call():
    text = '<tool_call>\n{"name": "write_file", "arguments": {"path": "a.txt", "text": "hel'
    for chunks in splits([text]):
        message = call("hermes", chunks, reason="length")
        assert message == Message(calls=(("write_file", '{"path": "a.txt", "text": "hel'),), finish="length", cut=(0,))


def test_OA_05_no_brace_is_invented_between_parameters():
    text = "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n"
    for chunks in splits([text]):
        message = call("qwen_xml", chunks, reason="length")
        assert message == Message(calls=(("write_file", '{"path": "a.txt"'),), finish="length", cut=(0,))
        # A model that stops by itself only forgot the closers.
        assert call("qwen_xml", chunks).calls == (("write_file", '{"path": "a.txt"}'),)


def test_OA_06_one_logprob_per_token_with_both_parsers():
    tokens = ["<think>", "a", "</think>", "<tool_call>", PING, "</tool_call>", "b"]
    generator = random.Random(1)
    for _ in range(30):
        chain = whole_chain("hermes", Start(tools=STANDARD), "qwen3")
        events, at = [], 0
        while at < len(tokens):
            size = generator.randint(1, 3)
            texts = tokens[at : at + size]
            rows = [TokenLogprobs(at + number, -0.1) for number in range(len(texts))]
            events += chain.feed(RowOutput(0, "".join(texts), range(at, at + len(texts)), rows))
            at += size
        events += chain.finish("stop")
        carriers = (TextDelta, ReasoningDelta, ToolCallStart, ToolCallDelta)
        assert [one.token for e in events if isinstance(e, carriers) for one in e.logprobs or ()] == list(range(7))
        assert fold(events) == ("a", "b", [("ping", "{}")], "tool_calls")


def test_OA_09_parallel_calls_off():
    # Whether anything comes after the second call, and in which pieces, is a matter of when the engine hears of it.
    text = hermes(weather("Oslo"), weather("Bergen"))
    for chunks in [*splits([text]), *splits([text + " and so on" + text])]:
        message = call("hermes", chunks, start=Start(tools=STANDARD, parallel=False))
        assert message.read() == [("get_weather", {"city": "Oslo"})]
        assert (message.content, message.finish) == ("", "tool_calls")


def test_RP_01_a_marker_cut_after_its_first_character():
    given = ["let me think<", f"/think>\n<tool_call>\n{PING}\n</tool_call>"]
    for chunks in splits(given):
        message = call("hermes", chunks, start=OPENED, reasoning="qwen3")
        assert message == Message("let me think", "", (("ping", "{}"),), "tool_calls")


@pytest.mark.parametrize(
    ("text", "content"),
    [("Sure.<think>a</think>b", "Sure.b"), ("\n<think>a</think>b", "b"), (" <think>a</think>b", "b")],
)
def test_RP_02_text_before_the_opening_marker(text, content):
    for chunks in splits([text]):
        assert call("hermes", chunks, reasoning="qwen3") == Message("a", content)


def test_RP_03_thinking_switched_off():
    text = hermes(PING, weather("Oslo"))
    for chunks in splits([text]):
        message = call("hermes", chunks, start=CLOSED, reasoning="qwen3")
        assert message.read() == [("ping", {}), ("get_weather", {"city": "Oslo"})]
        assert (message.reasoning, message.content, message.finish) == ("", "", "tool_calls")


@pytest.mark.parametrize(
    ("reasoning", "tools", "block"),
    [
        (
            "glm45",
            "glm45",
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>",
        ),
        (
            "deepseek_v4",
            "deepseek_v4",
            '<｜DSML｜tool_calls><｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="city" '
            'string="true">Oslo</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>',
        ),
        ("kimi_k2", "kimi_k2", kimi("functions.get_weather:0")),
        ("qwen3", "qwen", hermes(weather("Oslo"))),
        (
            "step3",
            "step3",
            '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">'
            '<steptml:parameter name="city">Oslo</steptml:parameter></steptml:invoke>'
            "<｜tool_call_end｜><｜tool_calls_end｜>",
        ),
        (
            "minimax",
            "minimax_m2",
            '<minimax:tool_call><invoke name="get_weather"><parameter name="city">Oslo</parameter>'
            "</invoke></minimax:tool_call>",
        ),
        ("mistral", "mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}'),
        (
            "seed_oss",
            "seed_oss",
            "<seed:tool_call><function=get_weather><parameter=city>Oslo</parameter></function></seed:tool_call>",
        ),
    ],
)
def test_RP_04_a_call_ends_reasoning_that_was_not_closed(reasoning, tools, block):
    opener = {"mistral": "[THINK]", "seed_oss": "<seed:think>"}.get(reasoning, "<think>")
    for chunks in splits(["I need data. ", block]):
        message = call(tools, chunks, start=Start(prompt_tail=opener, tools=STANDARD), reasoning=reasoning)
        assert (message.reasoning, message.content) == ("I need data. ", "")
        assert message.read() == [("get_weather", {"city": "Oslo"})]


@pytest.mark.parametrize(
    ("value", "read"),
    [('{"a": [1, "x"]}', {"a": [1, "x"]}), ("[1]", [1]), ("3", 3), ("{a: 1}", "{a: 1}"), ('"q"', '"q"')],
)
def test_a_value_that_nobody_declared_is_read_by_one_rule_streamed_or_not(value, read):
    text = (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="k">'
        f"{value}</parameter>\n</invoke>\n</minimax:tool_call>"
    )
    for chunks in splits([text]):
        assert call("minimax_m2", chunks).read() == [("f", {"k": read})]
