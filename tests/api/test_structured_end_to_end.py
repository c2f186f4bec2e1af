"""Structured output and forced calls through everything but the processes: what reaches an engine of each contract, and
what reaches the client (field cases SO-01, SO-02, SO-03, TP-06)."""

import json
from contextlib import asynccontextmanager

import grpc
import openai
import pydantic
import pytest
from msgspec.structs import replace
from smg_grpc_proto import trtllm_service_pb2 as trtllm

from smg.config.settings import ModelSettings
from smg.core.request import Constraint
from smg.engine_server.mock import CONTRACTS, Fault, Script
from tests.api.contract_fleet import SETTINGS, engines_of_contracts, services_over
from tests.api.serving import serving
from tests.constraints.oracle import allows

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
TEXT = json.dumps(SCHEMA, separators=(",", ":"))
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "ping"}},
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CONSTRAINED = [name for name in CONTRACTS if name != "mlx"]
_GUIDES = {
    trtllm.GuidedDecodingParams.GUIDE_TYPE_JSON: "json_object",
    trtllm.GuidedDecodingParams.GUIDE_TYPE_JSON_SCHEMA: "json_schema",
    trtllm.GuidedDecodingParams.GUIDE_TYPE_REGEX: "regex",
    trtllm.GuidedDecodingParams.GUIDE_TYPE_EBNF_GRAMMAR: "grammar",
    trtllm.GuidedDecodingParams.GUIDE_TYPE_STRUCTURAL_TAG: "structural_tag",
}


@asynccontextmanager
async def world(tmp_path, said, **parsers):
    """Engines that say ``said``, the services in front of them, and a client."""
    script = said if isinstance(said, Script) else Script.text(said)
    settings = replace(SETTINGS, model=ModelSettings(**parsers))
    async with (
        engines_of_contracts(script) as engines,
        services_over(engines, tmp_path, settings) as services,
        serving(services) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield engines, services, client


def received(engine):
    """The constraint that the engine was asked for last, whatever its contract calls it."""
    request = engine.requests[-1].request
    if "guided_decoding" in request.DESCRIPTOR.fields_by_name:
        guide = request.guided_decoding
        return Constraint(_GUIDES[guide.guide_type], guide.guide) if request.HasField("guided_decoding") else None
    params = request.sampling_params
    kind = params.WhichOneof("constraint")
    if kind is None:
        return None
    if kind == "choice":
        return Constraint("choice", choices=tuple(params.choice.choices))
    value = getattr(params, kind)
    return Constraint(kind.replace("ebnf_", ""), "" if value is True else value)


async def message(client, model="vllm", **fields):
    """The first choice, asked for whole and as a stream, which must say the same."""
    fields = {"model": model, "messages": HI} | fields
    choice = (await client.chat.completions.create(**fields)).choices[0]
    content, calls, reason, reasoning = "", [], None, ""
    async for chunk in await client.chat.completions.create(stream=True, **fields):
        for part in chunk.choices:
            content += part.delta.content or ""
            reasoning += getattr(part.delta, "reasoning_content", None) or ""
            reason = part.finish_reason or reason
            for delta in part.delta.tool_calls or []:
                if delta.id:
                    calls.append([delta.function.name, ""])
                calls[delta.index][1] += delta.function.arguments or ""
    whole = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or []]
    assert (content, calls, reason) == (choice.message.content or "", whole, choice.finish_reason)
    assert reasoning == (getattr(choice.message, "reasoning_content", None) or "")
    return reasoning, content, [tuple(call) for call in calls], reason


async def metric(services, name):
    return sum(value for key, _, value in services.metrics.cells.read_series() if name in key.decode())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_format": FORMAT}, Constraint("json_schema", TEXT)),
        ({"extra_body": {"guided_json": SCHEMA}}, Constraint("json_schema", TEXT)),
        ({"extra_body": {"guided_regex": "a{2}"}}, Constraint("regex", "a{2}")),
        ({"extra_body": {"ebnf": 'root ::= "a"'}}, Constraint("grammar", 'root ::= "a"')),
        (
            {"extra_body": {"structural_tag": {"type": "structural_tag", "format": {"type": "any_text"}}}},
            Constraint("structural_tag", '{"type":"structural_tag","format":{"type":"any_text"}}'),
        ),
    ],
)
async def test_a_constraint_reaches_every_engine_byte_for_byte(tmp_path, fields, expected):
    async with world(tmp_path, '{"x": 1}') as (engines, _, client):
        for name in CONSTRAINED:
            await client.chat.completions.create(model=name, messages=HI, **fields)
            assert received(engines[name]) == expected, name


async def test_kinds_that_not_all_contracts_have(tmp_path):
    async with world(tmp_path, "a.b") as (engines, _, client):
        for name in CONSTRAINED:
            await client.chat.completions.create(model=name, messages=HI, response_format={"type": "json_object"})
            own = name in ("vllm", "trtllm")
            any_object = Constraint("json_object") if own else Constraint("json_schema", '{"type":"object"}')
            assert received(engines[name]) == any_object
            await client.chat.completions.create(model=name, messages=HI, extra_body={"guided_choice": ["a.b", "c"]})
            listed = Constraint("choice", choices=("a.b", "c"))
            assert received(engines[name]) == (listed if name == "vllm" else Constraint("regex", r"(a\.b|c)"))


@pytest.mark.parametrize("choice", ["required", NAMED])
async def test_a_forced_call_in_the_model_s_own_form_on_every_engine(tmp_path, choice):
    async with world(tmp_path, CALL, tool_call_parser="hermes") as (engines, services, client):
        found = set()
        for name in CONSTRAINED:
            answer = await message(client, name, tools=TOOLS, tool_choice=choice)
            assert answer == ("", "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")
            found.add(received(engines[name]))
        [constraint] = found
        assert allows(constraint, CALL)
        assert allows(constraint, CALL.replace("get_weather", "ping").replace('"city": "Oslo"', "")) is (
            choice == "required"
        )
        assert await metric(services, "structured_output_invalid") == 0


async def test_a_forced_call_as_json_where_the_form_is_not_known(tmp_path):
    said = '[{"name": "get_weather", "parameters": {"city": "Oslo"}}, {"name": "ping", "parameters": {}}]'
    async with world(tmp_path, said) as (engines, _, client):
        answer = await message(client, tools=TOOLS, tool_choice="required")
        assert answer == ("", "", [("get_weather", '{"city": "Oslo"}'), ("ping", "{}")], "tool_calls")
        constraint = received(engines["vllm"])
        assert constraint.kind == "json_schema"
        assert allows(constraint, said)
        engines["vllm"].script = Script.text('{"city": "Oslo"}')
        answer = await message(client, tools=TOOLS, tool_choice=NAMED)
        assert answer == ("", "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")
        assert json.loads(received(engines["vllm"]).value) == {**WEATHER, "additionalProperties": False}


@pytest.mark.parametrize("said", [CALL, '{"city": "Oslo"}', '{"name": "get_weather", "arguments": {"city": "Oslo"}}'])
async def test_TP_06_whichever_form_the_model_speaks(tmp_path, said):
    async with world(tmp_path, said, tool_call_parser="hermes") as (_, _, client):
        answer = await message(client, tools=TOOLS, tool_choice=NAMED)
        assert answer == ("", "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")


@pytest.mark.parametrize(
    "parameters",
    [{"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, {"type": "not-a-type"}],
)
async def test_SO_01_no_engine_hears_of_a_bad_schema(tmp_path, parameters):
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": parameters}}
    async with world(tmp_path, "x") as (engines, _, client):
        for fields, path in (
            ({"response_format": schema}, "response_format.json_schema.schema"),
            ({"tools": [tool], "tool_choice": "required"}, "tools[0].function.parameters"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="vllm", messages=HI, **fields)
            assert caught.value.type == "invalid_request_error"
            assert caught.value.param.startswith(path)
        assert engines["vllm"].requests == []


class TestReasoning:
    """SO-02 with engines of each contract."""

    THOUGHT = 'I think {"x": 2}.\n</think>{"x": 1}'

    async def test_SO_02_thinking_on(self, tmp_path):
        async with world(tmp_path, self.THOUGHT, reasoning_parser="deepseek_r1") as (engines, services, client):
            for name in CONSTRAINED:
                answer = await message(client, name, response_format=FORMAT)
                assert answer == ('I think {"x": 2}.\n', '{"x": 1}', [], "stop"), name
                request, constraint = engines[name].requests[-1].request, received(engines[name])
                if name == "sglang":
                    assert (constraint, request.require_reasoning) == (Constraint("json_schema", TEXT), True)
                else:
                    assert allows(constraint, self.THOUGHT)
                    assert not allows(constraint, '{"x": 1}')
            assert engines["vllm"].requests[-1].request.sampling_params.grammar_from_first_token
            assert await metric(services, "structured_output_invalid") == 0

    async def test_SO_02_thinking_off(self, tmp_path):
        async with world(tmp_path, '{"x": 1}', reasoning_parser="qwen3") as (engines, _, client):
            for name in CONSTRAINED:
                assert await message(client, name, response_format=FORMAT) == ("", '{"x": 1}', [], "stop")
                assert received(engines[name]) == Constraint("json_schema", TEXT)
            assert not engines["vllm"].requests[-1].request.sampling_params.grammar_from_first_token
            assert not engines["sglang"].requests[-1].request.require_reasoning


class TestFormatAndTools:
    """SO-03: a call or an answer that fits."""

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            (CALL, ("", "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")),
            ('{"x": 1}', ("", '{"x": 1}', [], "stop")),
        ],
    )
    async def test_SO_03_both_are_possible(self, tmp_path, said, expected):
        async with world(tmp_path, said, tool_call_parser="hermes") as (engines, services, client):
            for name in CONSTRAINED:
                assert await message(client, name, response_format=FORMAT, tools=TOOLS) == expected
                assert allows(received(engines[name]), said)
                assert not allows(received(engines[name]), "free text")
            assert await metric(services, "structured_output_invalid") == 0

    async def test_SO_03_what_cannot_be_expressed_is_left_free_and_said(self, tmp_path):
        async with world(tmp_path, "free text", tool_call_parser="json") as (engines, services, client):
            raw = await client.chat.completions.with_raw_response.create(
                model="vllm", messages=HI, response_format=FORMAT, tools=TOOLS
            )
            assert received(engines["vllm"]) is None
            assert raw.headers["x-smg-warning"] == (
                "not supported by the engine and ignored: response_format; "
                "an answer does not match the requested format (unconstrained)"
            )
            assert await metric(services, "structured_output_invalid_total\0vllm\0unconstrained") == 1


class TestWhatComesOut:
    @pytest.mark.parametrize(
        ("said", "fields", "reason", "why"),
        [
            ('{"x": 1}', {"max_tokens": 3}, "length", "length"),
            ('{"x": 1}', {"stop": ["1"]}, "stop", "stop"),
            ('{"x": "one"}', {}, "stop", "engine"),
        ],
    )
    @pytest.mark.parametrize("stream", [False, True])
    async def test_an_answer_that_does_not_fit_is_told(self, tmp_path, caplog, said, fields, reason, why, stream):
        async with world(tmp_path, said) as (_, services, client):
            fields = {"model": "vllm", "messages": HI, "response_format": FORMAT, **fields}
            if stream:
                reasons = [
                    choice.finish_reason
                    async for chunk in await client.chat.completions.create(stream=True, **fields)
                    for choice in chunk.choices
                ]
                assert reasons[-1] == reason
            else:
                raw = await client.chat.completions.with_raw_response.create(**fields)
                assert raw.parse().choices[0].finish_reason == reason
                assert f"({why})" in raw.headers["x-smg-warning"]
            assert await metric(services, f"structured_output_invalid_total\0vllm\0{why}") == 1
            assert "does not match" in caplog.text

    @pytest.mark.parametrize("choice", ["required", NAMED])
    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_forced_call_that_does_not_come_is_told(self, tmp_path, caplog, choice, stream):
        async with world(tmp_path, "It is warm there.") as (_, services, client):
            fields = {"model": "vllm", "messages": HI, "tools": TOOLS, "tool_choice": choice}
            if stream:
                chunks = [chunk async for chunk in await client.chat.completions.create(stream=True, **fields)]
                assert chunks[-1].choices[0].finish_reason == "stop"
            else:
                raw = await client.chat.completions.with_raw_response.create(**fields)
                assert raw.parse().choices[0].message.content == "It is warm there."
                assert raw.headers["x-smg-warning"] == "an answer does not match the requested format (engine)"
            assert await metric(services, "structured_output_invalid_total\0vllm\0engine") == 1
            assert "does not match" in caplog.text

    async def test_an_engine_that_cannot_satisfy_a_constraint(self, tmp_path):
        fault = Fault(
            status=grpc.StatusCode.FAILED_PRECONDITION,
            message="no state is left",
            trailers=(("smg-constraint-failed", "engine"),),
        )
        async with world(tmp_path, Script(faults=(fault,))) as (engines, _, client):
            with pytest.raises(openai.UnprocessableEntityError) as caught:
                await client.chat.completions.create(model="vllm", messages=HI, response_format=FORMAT)
            assert (caught.value.code, caught.value.status_code) == ("constraint_failed", 422)
            assert caught.value.param == "response_format"
            assert len(engines["vllm"].requests) == 1, "not tried again"

    async def test_the_official_client_parses(self, tmp_path):
        class Answer(pydantic.BaseModel):
            x: int

        async with world(tmp_path, '{"x": 1}') as (engines, _, client):
            parsed = await client.beta.chat.completions.parse(model="vllm", messages=HI, response_format=Answer)
            assert parsed.choices[0].message.parsed == Answer(x=1)
            sent = json.loads(received(engines["vllm"]).value)
            assert (sent["required"], sent["additionalProperties"]) == (["x"], False)


async def test_engines_without_constraints_refuse_by_name(tmp_path):
    async with world(tmp_path, "x") as (engines, _, client):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="mlx", messages=HI, tools=TOOLS, tool_choice="required")
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "tool_choice")
        assert engines["mlx"].requests == []
        # Tools by themselves bind nothing.
        assert await message(client, "mlx", tools=TOOLS) == ("", "x", [], "stop")


async def test_a_parser_that_fails_is_counted(tmp_path, monkeypatch):
    from smg.parsing.engine.machine import Machine

    def fail(self, hit, marker):
        raise RuntimeError("a bug")
        yield

    monkeypatch.setattr(Machine, "_marker", fail)
    async with world(tmp_path, "Well. " + CALL, tool_call_parser="hermes") as (_, services, client):
        answer = await client.chat.completions.create(model="vllm", messages=HI, tools=TOOLS)
        assert answer.choices[0].message.content == "Well. " + CALL
        assert await metric(services, "parser_failures_total\0vllm\0tools\0qwen") == 1


async def test_a_grammar_that_only_some_engines_can_read(tmp_path):
    """Lark's notation with a part that EBNF has not: vLLM gets it as it is, others are not asked."""
    grammar = "start: /a(?=b)/"
    async with world(tmp_path, "x") as (engines, _, client):
        await client.chat.completions.create(model="vllm", messages=HI, extra_body={"ebnf": grammar})
        assert received(engines["vllm"]) == Constraint("grammar", grammar)
        for name in ("sglang", "trtllm", "tokenspeed"):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model=name, messages=HI, extra_body={"ebnf": grammar})
            assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "ebnf")
