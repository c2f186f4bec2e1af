"""A forced tool choice is read in the form of its constraint, or in the model's own (field case TP-06)."""

import pytest

from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.forced import Forced
from smg.parsing.table import TOOLS
from tests.parsing.runs import STANDARD, Message, feed, fold, reasoning_parser, row
from tests.splits import splits

WEATHER = STANDARD[0]
NATIVE = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>'
)


def read(text, *, named=True, family="kimik2", reasoning=None, tail="", finish="stop"):
    """What comes of ``text``, the same however it is cut."""
    found = None
    for chunks in splits([text]):
        start = Start(prompt_tail=tail, tools=STANDARD)
        tools = Forced(WEATHER if named else None, row(TOOLS, family).factory)(start)
        chain = Chain(0, start, reasoning_parser(reasoning, start) if reasoning else None, tools)
        thought, content, calls, reason = fold([*feed(chain, chunks), *chain.finish(finish)])
        message = Message(thought, content, tuple(calls), reason)
        assert found in (None, message)
        found = message
    assert found is not None
    return found


OSLO = (("get_weather", '{"city": "Oslo"}'),)


@pytest.mark.parametrize("named", [True, False])
def test_TP_06_the_model_s_own_form(named):
    said = "I should look it up"
    thought = read(said + NATIVE, named=named, reasoning="kimi_k25", tail="<think>")
    assert thought == Message(said, "", OSLO, "tool_calls")
    plain = read(said + NATIVE, named=named, reasoning="kimi_k25", tail="<think></think>")
    assert plain == Message("", said, OSLO, "tool_calls")


@pytest.mark.parametrize("family", ["kimik2", "qwen", "llama", "json", "passthrough"])
def test_TP_06_arguments_alone_are_a_call_of_the_named_tool(family):
    for text in ('{"city": "Oslo"}', ' \n{"city": "Oslo"}\n'):
        message = read(text, family=family)
        assert (message.calls, message.content.strip(), message.finish) == (OSLO, "", "tool_calls")
    assert read("{}", family=family).calls == (("get_weather", "{}"),)


def test_TP_06_the_arguments_form_behind_reasoning():
    message = read('Hm.</think>\n\n{"city": "Oslo"}', reasoning="qwen3", tail="<think>\n")
    assert (message.reasoning, message.calls) == ("Hm.", OSLO)


@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_a_whole_call_as_json(key):
    text = f'{{"name": "get_weather", "{key}": {{"city": "Oslo"}}}}'
    for given in (text, f"[{text}]"):
        assert read(given).calls == OSLO
        assert read(given, named=False).calls == OSLO


def test_several_calls_as_json():
    text = '[{"name": "get_weather", "parameters": {"city": "Oslo"}}, {"name": "ping", "parameters": {}}]'
    assert read(text, named=False).calls == (*OSLO, ("ping", "{}"))


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]ping[ARGS]{}'),
        ("mistral", f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {OSLO[0][1]}}}, {{"name": "ping"}}]'),
        ("pythonic", "[get_weather(city='Oslo'), ping()]"),
        ("sarashina", "[{'name': 'get_weather', 'arguments': {'city': 'Oslo'}}, {'name': 'ping'}]"),
        ("llama", '{"name": "get_weather", "parameters": {"city": "Oslo"}}; {"name": "ping", "parameters": {}}'),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_TP_06_forms_that_begin_like_JSON(family, text, named):
    message = read(text, family=family, named=named)
    assert (message.read(), message.content) == ([("get_weather", {"city": "Oslo"}), ("ping", {})], "")


def test_only_one_object_is_the_arguments():
    message = read('{"city": "Oslo"}{"city": "Bergen"}')
    assert (message.calls, message.content) == (OSLO, "")


def test_OA_05_arguments_that_are_cut_off():
    message = read('{"city": "Os', finish="length")
    assert (message.calls, message.finish) == ((("get_weather", '{"city": "Os'),), "length")


@pytest.mark.parametrize("text", ["It is sunny.", "{bad", "", "   ", "[1, 2]", '{"a'])
def test_what_is_no_call_stays_text(text):
    message = read(text, named=False)
    assert (message.calls, message.content, message.finish) == ((), text, "stop")
