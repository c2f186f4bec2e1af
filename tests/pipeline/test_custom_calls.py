"""Custom tools on engines that are asked for functions."""

import json

import pytest

from smg.core.context import RequestContext
from smg.core.events import TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from smg.core.request import GenerationRequest, Message, Tool, ToolCall, ToolChoice, ToolGrammar
from smg.engine_server.mock.http import HttpScript, MockHttpEngine
from smg.engines.http.chat_body import chat_body
from smg.pipeline.custom_calls import CustomCalls, as_functions, unbound
from smg.pipeline.remote import Remote
from tests.api.http_world import MODEL, place
from tests.parsing.runs import fold
from tests.splits import splits

SHELL = Tool("sh", "Runs a command.", kind="custom")
SUM = Tool("add", kind="custom", grammar=ToolGrammar("lark", 'start: "1"'))
CODE = Tool("code", kind="custom", grammar=ToolGrammar("regex", "[0-9]+"))
WEATHER = Tool("weather", parameters={"type": "object"})
TEXT = 'echo "a\\b" > f\n# 東京 🙂'
INPUT = json.dumps({"input": TEXT})


def asked(*tools, mode="auto", messages=()):
    return GenerationRequest(
        "x", MODEL, messages=[*messages, Message("user", "hi")], tools=[*tools], tool_choice=ToolChoice(mode)
    )


def test_the_engine_is_given_functions_with_one_argument():
    tools = chat_body(as_functions(asked(SHELL, SUM, CODE, WEATHER)))["tools"]
    shell, add, code, weather = (tool["function"] for tool in tools)
    assert shell == {
        "name": "sh",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    }
    assert 'start: "1"' in add["parameters"]["properties"]["input"]["description"]
    assert code["parameters"]["properties"]["input"]["pattern"] == "^(?:[0-9]+)$"
    assert weather == {"name": "weather", "parameters": {"type": "object"}}


def test_earlier_calls_are_calls_of_functions():
    calls = [ToolCall("c1", "sh", TEXT, "custom"), ToolCall("c2", "weather", "{}")]
    turn = Message("assistant", tool_calls=calls)
    body = chat_body(as_functions(asked(SHELL, WEATHER, messages=[turn])))
    first, second = body["messages"][0]["tool_calls"]
    assert first["function"] == {"name": "sh", "arguments": json.dumps({"input": TEXT}, ensure_ascii=False)}
    assert second["function"]["arguments"] == "{}"


def test_a_request_without_custom_tools_stays_as_it_is():
    request = asked(WEATHER)
    assert as_functions(request) is request


def test_grammars_that_bind_nothing_are_named():
    assert unbound(asked(SHELL, SUM, CODE)) == ("tools[1].custom.format", "tools[2].custom.format")
    assert unbound(asked(SHELL, SUM, CODE, mode="required")) == ("tools[1].custom.format",)
    assert unbound(asked(SHELL, WEATHER)) == ()


@pytest.mark.parametrize(("arguments", "expected"), [(INPUT, TEXT), ("{}", "{}"), ("plain", "plain"), ("", "")])
def test_the_input_is_the_text_itself_however_it_is_cut(arguments, expected):
    for chunks in splits([arguments]):
        events = CustomCalls([SHELL, WEATHER]).translated(
            [
                ToolCallStart(0, 0, "c1", "sh"),
                *(ToolCallDelta(0, 0, chunk) for chunk in chunks),
                ToolCallEnd(0, 0),
                ToolCallStart(0, 1, "c2", "weather"),
                ToolCallDelta(0, 1, '{"input": "x"}'),
                ToolCallEnd(0, 1),
                TextDelta(0, "done"),
            ]
        )
        assert [event.kind for event in events if isinstance(event, ToolCallStart)] == ["custom", "function"]
        assert fold(events)[1:3] == ("done", [("sh", expected), ("weather", '{"input": "x"}')])


@pytest.mark.parametrize("piece", [0, 1])
async def test_over_an_engine(piece):
    script = HttpScript(texts=("",), calls=(("sh", INPUT), ("weather", "{}")), piece=piece)
    async with place(MockHttpEngine(script, server="vllm")) as at:
        ctx = RequestContext("r1")
        generation = Remote(at.world.services, ctx, asked(SHELL, SUM, WEATHER))
        await generation.start()
        events = [event async for batch in generation for event in batch]
        await generation.aclose()
        assert fold(events)[2:] == ([("sh", TEXT), ("weather", "{}")], "tool_calls")
        assert [event.kind for event in events if isinstance(event, ToolCallStart)] == ["custom", "function"]
        assert "tools[1].custom.format" in ctx.notes["warning"]
