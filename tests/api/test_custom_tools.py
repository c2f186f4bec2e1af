"""Custom tools of chat completions: free text or a grammar in, ``custom`` calls out, with the official client."""

import json

import openai
import pytest

from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.test_structured_end_to_end import CONSTRAINED, HI, received, world
from tests.constraints.oracle import allows

SHELL = {"type": "custom", "custom": {"name": "sh", "description": "Runs a command."}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "custom", "custom": {"name": "sh"}}
SUM = 'start: INT " + " INT\n%import common.INT'


def with_grammar(definition, syntax="lark", name="sh"):
    format_ = {"type": "grammar", "grammar": {"definition": definition, "syntax": syntax}}
    return {"type": "custom", "custom": {"name": name, "format": format_}}


def hermes(text, name="sh"):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'input': text}})}\n</tool_call>"


def coder(text):
    return f"<tool_call>\n<function=sh>\n<parameter=input>\n{text}\n</parameter>\n</function>\n</tool_call>"


FORMS = {
    "hermes": hermes,
    "qwen_xml": coder,
    "mistral": lambda text: f'[TOOL_CALLS] [{{"name": "sh", "arguments": {json.dumps({"input": text})}}}]',
    "kimi_k2": lambda text: (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.sh:0<|tool_call_argument_begin|>"
        f"{json.dumps({'input': text})}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "pythonic": lambda text: f"[sh(input={text!r})]",
}


async def calls(client, model="vllm", **fields):
    """The custom calls as (name, input), asked for whole and as a stream, which must say the same; and the reason."""
    fields = {"model": model, "messages": HI, "tools": [SHELL, WEATHER]} | fields
    choice = (await client.chat.completions.create(**fields)).choices[0]
    whole = []
    for call in choice.message.tool_calls or []:
        assert call.type == "custom"
        whole.append((call.custom.name, call.custom.input))
    streamed, content = [], ""
    async for chunk in await client.chat.completions.create(stream=True, **fields):
        for part in chunk.choices:
            content += part.delta.content or ""
            for delta in part.delta.tool_calls or []:
                if delta.id is not None:
                    assert (delta.type, delta.index) == ("custom", len(streamed))
                    streamed.append([delta.custom["name"], ""])
                streamed[delta.index][1] += delta.custom["input"]
    assert ([tuple(one) for one in streamed], content) == (whole, choice.message.content or "")
    return whole, choice.finish_reason


TEXT = "echo \"a\\b\" | grep 'x' > f\n# 東京 🙂"


@pytest.mark.parametrize("split", ["word", "byte"])
@pytest.mark.parametrize("family", FORMS)
async def test_the_input_is_the_text_itself_in_every_form(tmp_path, family, split):
    said = Script.text(FORMS[family](TEXT), split=split, per_chunk=2)
    async with world(tmp_path, said, tool_call_parser=family) as (_, _, client):
        assert await calls(client) == ([("sh", TEXT)], "tool_calls")


async def test_functions_beside_it_stay_functions(tmp_path):
    said = '<tool_call>\n{"name": "get_weather", "arguments": {"a": 1}}\n</tool_call>\n' + hermes("ls")
    async with world(tmp_path, said, tool_call_parser="hermes") as (_, _, client):
        answer = await client.chat.completions.create(model="vllm", messages=HI, tools=[SHELL, WEATHER])
        function, custom = answer.choices[0].message.tool_calls
        assert (function.type, function.function.arguments) == ("function", '{"a": 1}')
        assert (custom.type, custom.custom.input) == ("custom", "ls")
        assert function.id != custom.id


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"input": ""}', ""), ("{}", "{}"), ('{"command": "ls"}', '{"command": "ls"}'), ('{"input": 5}', '{"input": 5}')],
)
async def test_arguments_of_another_form_are_passed_on_as_they_are(tmp_path, arguments, text):
    said = f'<tool_call>\n{{"name": "sh", "arguments": {arguments}}}\n</tool_call>'
    async with world(tmp_path, said, tool_call_parser="hermes") as (_, _, client):
        assert await calls(client) == ([("sh", text)], "tool_calls")


async def test_OA_05_an_input_that_is_cut_off(tmp_path):
    said = Script.text('<tool_call>\n{"name": "sh", "arguments": {"input": "ls -', eos=False, finish="length")
    async with world(tmp_path, said, tool_call_parser="hermes") as (_, _, client):
        assert await calls(client) == ([("sh", "ls -")], "length")


async def test_the_model_is_shown_a_function_with_the_grammar_in_words(tmp_path):
    script = Script(tokens=lambda request, choice: list(request.tokenized.input_ids))
    async with world(tmp_path, script, tool_call_parser="passthrough") as (_, _, client):
        for syntax, words in (("lark", "a Lark grammar"), ("regex", "a regular expression")):
            tools = [with_grammar("a+" if syntax == "regex" else SUM, syntax), SHELL]
            answer = await client.chat.completions.create(model="vllm", messages=HI, tools=tools, max_tokens=2000)
            first, second = (json.loads(line) for line in answer.choices[0].message.content.split("\n") if "{" in line)
            shown = first["function"]["parameters"]["properties"]["input"]["description"]
            assert words in shown
            assert ("a+" if syntax == "regex" else SUM) in shown
            assert second["function"] == {
                "name": "sh",
                "description": "Runs a command.",
                "parameters": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            }


class TestForced:
    @pytest.mark.parametrize("choice", ["required", NAMED])
    @pytest.mark.parametrize("tool", [with_grammar(SUM), with_grammar(r"\d+ \+ \d+", "regex")], ids=["lark", "regex"])
    @pytest.mark.parametrize("family", ["hermes", "qwen_xml", "mistral", "kimi_k2"])
    async def test_a_grammar_binds_the_input_on_every_engine(self, tmp_path, family, tool, choice):
        form = FORMS[family]
        async with world(tmp_path, form("4 + 38"), tool_call_parser=family) as (engines, _, client):
            for name in CONSTRAINED:
                assert await calls(client, name, tools=[tool], tool_choice=choice) == ([("sh", "4 + 38")], "tool_calls")
                constraint = received(engines[name])
                assert allows(constraint, form("4 + 38"))
                assert not allows(constraint, form("4 - 38"))
                assert not allows(constraint, form("4 + 38 + 1"))

    async def test_quotes_and_line_ends_of_the_grammar_are_those_of_the_text(self, tmp_path):
        tool = with_grammar('start: "print(\\"" /[a-z]+/ "\\")\\n"')
        text = 'print("hi")\n'
        async with world(tmp_path, hermes(text), tool_call_parser="hermes") as (engines, _, client):
            assert await calls(client, tools=[tool], tool_choice=NAMED) == ([("sh", text)], "tool_calls")
            assert allows(received(engines["vllm"]), hermes(text))
            assert not allows(received(engines["vllm"]), hermes('print("hi")'))

    async def test_a_grammar_binds_its_own_calls_only_where_none_is_forced(self, tmp_path):
        async with world(tmp_path, hermes("4 + 38"), tool_call_parser="hermes") as (engines, _, client):
            assert await calls(client, tools=[with_grammar(SUM), WEATHER]) == ([("sh", "4 + 38")], "tool_calls")
            constraint = received(engines["vllm"])
            for text in ("It is 42.", hermes("4 + 38"), hermes("anything", "get_weather")):
                assert allows(constraint, text)
            assert not allows(constraint, hermes("four"))

    async def test_a_grammar_that_binds_nothing_is_told(self, tmp_path):
        async with world(tmp_path, '{"input": "four"}', tool_call_parser="json") as (_, _, client):
            ignored = "not supported by the engine and ignored"
            # The engine says nothing that is a call of either tool.
            required = f"{ignored}: tools[1].custom.format; an answer does not match the requested format (engine)"
            for fields, warned in (
                ({"tools": [WEATHER, with_grammar(SUM)], "tool_choice": "required"}, required),
                ({"tools": [WEATHER, with_grammar(SUM)], "tool_choice": NAMED}, None),
                ({"tools": [with_grammar(r"\d+", "regex")], "tool_choice": NAMED}, None),
                ({"tools": [with_grammar(r"\d+", "regex")]}, f"{ignored}: tools[0].custom.format"),
            ):
                raw = await client.chat.completions.with_raw_response.create(model="vllm", messages=HI, **fields)
                assert raw.headers.get("x-smg-warning") == warned

    async def test_a_lark_grammar_binds_the_one_tool_that_is_named_without_tags_too(self, tmp_path):
        async with world(tmp_path, '{"input": "4 + 38"}', tool_call_parser="json") as (engines, _, client):
            for name in CONSTRAINED:
                found = await calls(client, name, tools=[with_grammar(SUM)], tool_choice=NAMED)
                assert found == ([("sh", "4 + 38")], "tool_calls")
                assert allows(received(engines[name]), '{"input": "4 + 38"}')
                assert not allows(received(engines[name]), '{"input": "four"}')

    async def test_allowed_tools_may_be_custom(self, tmp_path):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
        async with world(tmp_path, hermes("ls"), tool_call_parser="hermes") as (engines, _, client):
            assert await calls(client, tool_choice=allowed) == ([("sh", "ls")], "tool_calls")
            assert allows(received(engines["vllm"]), hermes("ls"))
            assert not allows(received(engines["vllm"]), hermes("ls", "get_weather"))

    async def test_plain_JSON_where_the_model_s_form_is_not_known(self, tmp_path):
        async with world(tmp_path, '{"input": "12"}') as (engines, _, client):
            tool = with_grammar(r"\d+", "regex")
            assert await calls(client, tools=[tool], tool_choice=NAMED) == ([("sh", "12")], "tool_calls")
            assert allows(received(engines["vllm"]), '{"input": "12"}')
            assert not allows(received(engines["vllm"]), '{"input": "x"}')
            engines["vllm"].script = Script.text('[{"name": "sh", "parameters": {"input": "12"}}]')
            assert await calls(client, tools=[tool], tool_choice="required") == ([("sh", "12")], "tool_calls")


class TestRefused:
    @pytest.mark.parametrize(
        ("tool", "param", "words"),
        [
            (with_grammar("start: other"), "custom.format.grammar.definition", "no rule or terminal 'other'"),
            (with_grammar("(?=a)", "regex"), "custom.format.grammar.definition", "groups"),
            (with_grammar("a" * 70_000, "regex"), "custom.format.grammar.definition", "longer than"),
            (with_grammar("a", "peg"), "custom.format.grammar.syntax", "peg"),
            ({"type": "custom", "custom": {"name": "sh", "format": {"type": "xml"}}}, "custom.format.type", "xml"),
            ({"type": "custom", "custom": {"name": ""}}, "custom.name", "name"),
        ],
    )
    async def test_what_is_wrong_is_named(self, tmp_path, tool, param, words):
        async with world(tmp_path, "x") as (engines, _, client):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="vllm", messages=HI, tools=[tool])
            assert caught.value.param == f"tools[0].{param}"
            assert words in caught.value.message or param.endswith("type")
            assert engines["vllm"].requests == []

    @pytest.mark.parametrize(
        "choice",
        [{"type": "function", "function": {"name": "sh"}}, {"type": "custom", "custom": {"name": "get_weather"}}],
    )
    async def test_a_choice_names_the_tool_s_own_kind(self, tmp_path, choice):
        async with world(tmp_path, "x") as (_, _, client):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(
                    model="vllm", messages=HI, tools=[SHELL, WEATHER], tool_choice=choice
                )
            assert caught.value.param == "tool_choice.type"

    async def test_the_flat_form_of_Responses_is_taken_too(self, tmp_path):
        format_ = {"type": "grammar", "definition": "a+", "syntax": "regex"}
        tool = {"type": "custom", "custom": {"name": "sh", "format": format_}}
        async with world(tmp_path, hermes("aa"), tool_call_parser="hermes") as (_, _, client):
            assert await calls(client, tools=[tool], tool_choice=NAMED) == ([("sh", "aa")], "tool_calls")


async def test_a_call_and_its_result_go_back_into_the_prompt(tmp_path):
    call = {"id": "c1", "type": "custom", "custom": {"name": "sh", "input": 'ls "x"'}}
    turns = [*HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "f"}]
    async with world(tmp_path, "done") as (engines, _, client):
        await client.chat.completions.create(model="vllm", messages=turns)
        shown = mock.decode_ids(list(engines["vllm"].requests[-1].request.tokenized.input_ids))
        assert json.loads(shown[shown.index("{") : shown.rindex("}") + 1]) == {
            "name": "sh",
            "arguments": {"input": 'ls "x"'},
        }
