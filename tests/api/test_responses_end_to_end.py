"""Responses through everything but the processes: what reaches engines, and what the official client makes of it."""

import json

import openai
import pytest

from smg.api.dialect import Meta
from smg.core.context import RequestContext
from smg.core.events import Finish, TextDelta, Usage
from smg.core.stream import NoDecoder
from smg.engine_server.mock import Script
from smg.engine_server.mock.http import HttpFault
from tests.api.conftest import idle, say
from tests.api.http_world import MODEL, place
from tests.api.responses_events import folded, named, without_ids
from tests.api.serving import until
from tests.api.test_forward import engine
from tests.api.test_forward import post as ask
from tests.api.test_responses_encode import DIALECT, streamed
from tests.api.test_structured_end_to_end import CALL, CONSTRAINED, FORMAT, HI, SCHEMA, received, world

PATH = "/v1/responses"
TEXT_FORMAT = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "parameters": WEATHER},
    {"type": "function", "name": "ping", "parameters": {"type": "object", "properties": {}}},
]
AS_CHAT = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in TOOLS]


async def both(client, model="vllm", **fields):
    """The response, asked for whole and as a stream, which must say the same."""
    fields = {"model": model, "input": "hi"} | fields
    whole = await client.responses.create(**fields)
    async with client.responses.stream(**fields) as stream:
        async for _ in stream:
            pass
        last = await stream.get_final_response()
    assert without_ids(_plain(last)) == without_ids(_plain(whole))
    return whole


def _plain(response) -> dict:
    """The response without what the client adds to the types of its helpers."""
    found = json.loads(response.model_dump_json())
    for item in found["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or []:
            part.pop("parsed", None)
    return found


@pytest.mark.parametrize("engine_transport", ["grpcio", "native"])
async def test_both_transports_write_the_same_bytes(engines, gateway, post, monkeypatch):
    monkeypatch.setattr("smg.api.openai_responses.decode.response_id", lambda: "resp_" + "0" * 32)
    monkeypatch.setattr("smg.core.clock.created", lambda: 9)
    say(engines, Script.text('hi "there" 😀\n', split="byte"))
    body = {"model": "mock", "input": "hi", "stream": True}
    status, found = await post(PATH, body)
    text = [TextDelta(0, char) for char in 'hi "there" 😀\n']
    counts = folded(found)["usage"]
    usage = Usage(counts["input_tokens"], counts["output_tokens"])
    request = DIALECT.decode(json.dumps(body).encode(), {}, {}, RequestContext("r"))
    wanted = streamed([*text, Finish(0, "stop"), usage], Meta(request, "mock", 9, NoDecoder()))
    assert (status, found) == (200, wanted)
    await idle(gateway, engines)


class TestEngines:
    async def test_SO_01_a_schema_that_means_nothing_reaches_none(self, tmp_path):
        async with world(tmp_path, "x") as (engines, _, client):
            for schema in ({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, {"type": "not-a-type"}):
                form = {"format": {"type": "json_schema", "name": "a", "schema": schema}}
                with pytest.raises(openai.BadRequestError) as caught:
                    await client.responses.create(model="vllm", input="hi", text=form)
                assert caught.value.param.startswith("text.format.schema")
            assert engines["vllm"].requests == []

    @pytest.mark.parametrize(
        ("said", "parser"),
        [('I think {"x": 2}.\n</think>{"x": 1}', "deepseek_r1"), ('{"x": 1}', "qwen3")],
        ids=["thinking on", "thinking off"],
    )
    async def test_SO_02_the_constraint_is_that_of_chat(self, tmp_path, said, parser):
        async with world(tmp_path, said, reasoning_parser=parser) as (engines, _, client):
            for name in CONSTRAINED:
                await client.chat.completions.create(model=name, messages=HI, response_format=FORMAT)
                response = await both(client, name, text=TEXT_FORMAT)
                assert response.output_text == '{"x": 1}'
                chat, *ours = [one.request for one in engines[name].requests]
                for request in ours:
                    assert _without_id(request) == _without_id(chat)
                assert received(engines[name]) is not None

    @pytest.mark.parametrize(
        ("choice", "chat"),
        [
            ("required", "required"),
            ({"type": "function", "name": "get_weather"}, {"type": "function", "function": {"name": "get_weather"}}),
            (
                {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
                {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "get_weather"}}],
                    },
                },
            ),
        ],
    )
    async def test_forced_calls_are_forced_as_in_chat(self, tmp_path, choice, chat):
        async with world(tmp_path, CALL, tool_call_parser="hermes") as (engines, _, client):
            await client.chat.completions.create(model="vllm", messages=HI, tools=AS_CHAT, tool_choice=chat)
            response = await both(client, tools=TOOLS, tool_choice=choice)
            (call,) = response.output
            assert (call.type, call.name, call.arguments) == ("function_call", "get_weather", '{"city": "Oslo"}')
            assert response.tool_choice == choice or response.tool_choice.to_dict() == choice
            first, *ours = [one.request for one in engines["vllm"].requests]
            assert all(_without_id(request) == _without_id(first) for request in ours)

    async def test_a_conversation_is_the_prompt_that_chat_makes_of_it(self, tmp_path):
        async with world(tmp_path, CALL, tool_call_parser="hermes") as (engines, _, client):
            question = {"role": "user", "content": "Weather in Oslo?"}
            first = await client.responses.create(model="vllm", input=[question], tools=TOOLS, instructions="Be brief.")
            (call,) = first.output
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "12"}
            # What came out goes in again as it is.
            items = [question, *(item.to_dict() for item in first.output), result]
            await client.responses.create(model="vllm", input=items, tools=TOOLS, instructions="Be brief.")
            function = {"name": call.name, "arguments": call.arguments}
            messages = [
                {"role": "system", "content": "Be brief."},
                question,
                {"role": "assistant", "tool_calls": [{"id": call.call_id, "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": call.call_id, "content": "12"},
            ]
            await client.chat.completions.create(model="vllm", messages=messages, tools=AS_CHAT)
            *_, ours, chat = [list(one.request.tokenized.input_ids) for one in engines["vllm"].requests]
            assert ours == chat

    async def test_RS_04_a_custom_tool(self, tmp_path):
        patch = "*** Begin Patch\n\n*** End Patch"
        said = f"<tool_call>\n{json.dumps({'name': 'apply_patch', 'arguments': {'input': patch}})}\n</tool_call>"
        grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"}
        tools = [{"type": "custom", "name": "apply_patch", "description": "Edit files", "format": grammar}]
        async with world(tmp_path, said, tool_call_parser="hermes") as (_, _, client):
            response = await both(client, tools=tools)
            (call,) = response.output
            assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", patch)
            result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}
            items = [{"role": "user", "content": "hi"}, call.to_dict(), result]
            assert (await client.responses.create(model="vllm", input=items, tools=tools)).status == "completed"


async def test_RP_05_the_border_inside_one_delta(tmp_path):
    for cut in (1, 3, 1000):
        said = Script.text("A final thought.</think>Answer starts.", split="word", per_chunk=cut)
        async with world(tmp_path / str(cut), said, reasoning_parser="deepseek_r1") as (_, _, client):
            thought, message = (await both(client)).output
            assert (thought.type, thought.content[0].text) == ("reasoning", "A final thought.")
            assert message.content[0].text == "Answer starts."


async def test_log_probabilities(engines, client):
    say(engines, Script.text("hi é", split="byte"))
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    response = await both(client, "mock", **asked)
    (part,) = response.output[0].content
    assert bytes(byte for row in part.logprobs for byte in row.bytes).decode() == "hi é"
    assert all(len(row.top_logprobs) == 2 for row in part.logprobs)


class TestHttpEngines:
    async def test_one_that_speaks_responses_gets_the_body_as_it_is(self):
        body = b'{"model":"mock-model", "input" : "hi there", "previous_response_id": "r", "tools":[{"type":"mcp"}]}'
        async with place(engine()) as at:
            answer = await ask(at.url, PATH, body)
            assert (answer.status_code, answer.json()["output"][0]["content"][0]["text"]) == (200, "one two three")
            assert (at.engines[0].requests[0].path, at.engines[0].requests[0].body) == (PATH, body)

    @pytest.mark.parametrize("piece", [0, 7])
    async def test_RS_01_its_stream_that_breaks_off_ends_with_the_next_number(self, piece):
        said = 'say "sequence_number": 99'
        async with place(engine(faults=(HttpFault(kind="reset", after=4),), texts=(said,), piece=piece)) as at:
            answer = await ask(at.url, PATH, {"model": MODEL, "input": "hi", "stream": True})
            events = named(answer.content)
            assert [event["sequence_number"] for event in events] == [0, 1, 2, 3, 4]
            assert events[0]["type"] == "response.created"
            assert (events[-1]["type"], events[-1]["code"]) == ("error", "worker_stream_failed")
            await until(at.idle)

    @pytest.mark.parametrize("piece", [0, 1, 9])
    async def test_one_that_speaks_only_chat_is_asked_in_chat(self, piece):
        fields = {
            "model": MODEL,
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": "hi there"}],
            "tools": TOOLS,
            "max_output_tokens": 9,
            "text": TEXT_FORMAT,
        }
        said = {"reasoning": "hm so", "calls": (("ping", '{"a": 1}'),), "responses": False, "piece": piece}
        async with place(engine("vllm", **said)) as at:
            whole = (await ask(at.url, PATH, fields)).json()
            last = folded((await ask(at.url, PATH, fields | {"stream": True})).content)
            assert without_ids(last) == without_ids(whole)
            assert [item["type"] for item in whole["output"]] == ["reasoning", "function_call", "message"]
            assert whole["output"][1]["arguments"] == '{"a": 1}'
            seen = at.engines[0].requests[0]
            assert seen.path == "/v1/chat/completions"
            assert seen.json["messages"] == [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "hi there"},
            ]
            assert [tool["function"]["name"] for tool in seen.json["tools"]] == ["get_weather", "ping"]
            assert seen.json["response_format"]["json_schema"]["schema"] == SCHEMA
            assert seen.json["max_tokens"] == 9
            await until(at.idle)

    async def test_what_such_an_engine_has_no_place_for_is_refused_by_name(self):
        async with place(engine("vllm", responses=False)) as at:
            fields = {"model": MODEL, "input": "hi", "include": ["message.output_text.logprobs"]}
            answer = await ask(at.url, PATH, fields)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "include")

    async def test_MS_08_its_counts_are_told(self):
        async with place(engine("vllm", responses=False, cached_tokens=64)) as at:
            usage = (await ask(at.url, PATH, {"model": MODEL, "input": "hi there"})).json()["usage"]
            assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (2, 64)


def _without_id(request):
    """What an engine was asked, but for what differs between any two requests."""
    copy = type(request)()
    copy.CopyFrom(request)
    for name in ("request_id", "stream", "timestamp"):
        if name in copy.DESCRIPTOR.fields_by_name:
            copy.ClearField(name)
    return copy
