"""Structured output and forced calls on a real model: whatever a small model would rather say, the form is kept."""

import json
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema_rs
import openai
import pydantic
import pytest
from openai.types.chat.chat_completion import Choice

from tests.gateway import MODEL, Gateway, running, settings

pytestmark = pytest.mark.e2e

ASK = [{"role": "user", "content": "Tell me about a city."}]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
}
MOOD = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
SCHEMAS = {"get_weather": WEATHER, "set_mood": MOOD, "ping": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def hermes(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that takes the model for one with calls in tags, so that structural tags are used."""
    state = tmp_path_factory.mktemp("hermes")
    with running(settings(state, "--worker-urls", engine, "--tool-call-parser", "hermes")) as started:
        yield started


def schema_of(seed: int) -> dict[str, object]:
    """A random schema whose values are all short."""
    generator = random.Random(seed)

    def value(depth: int) -> dict[str, object]:
        kinds = ["string", "integer", "number", "boolean", "enum", "null", *(["object", "array"] if depth else [])]
        match generator.choice(kinds):
            case "string":
                return {"type": "string", "maxLength": generator.randint(1, 12)}
            case "integer":
                return {"type": "integer", "minimum": -5, "maximum": generator.randint(0, 999)}
            case "number":
                return {"type": "number", "minimum": 0, "maximum": 1}
            case "enum":
                return {"enum": generator.sample(["red", "grün", 1, 2.5, None, True], 3)}
            case "array":
                return {"type": "array", "items": value(depth - 1), "minItems": 1, "maxItems": 3}
            case "object":
                return an_object(depth - 1)
            case kind:
                return {"type": kind}

    def an_object(depth: int) -> dict[str, object]:
        properties = {f"field_{number}": value(depth) for number in range(generator.randint(1, 4))}
        required = [name for name in properties if generator.random() < 0.7]
        return {"type": "object", "properties": properties, "required": required}

    return an_object(2)


def of_schema(schema: dict[str, object]) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


SEEDS = range(20)


@pytest.fixture(scope="module")
def answers(gateway: Gateway) -> list[Choice]:
    """The answer for the schema of each seed, asked at once: the engine takes them together."""
    client = gateway.client()

    def ask(seed: int) -> Choice:
        form = of_schema(schema_of(seed))
        answer = client.chat.completions.create(
            model=MODEL, messages=ASK, seed=seed, temperature=1.2, max_tokens=600, response_format=form
        )
        return answer.choices[0]

    with ThreadPoolExecutor(len(SEEDS)) as threads:
        return list(threads.map(ask, SEEDS))


@pytest.mark.timeout(300)  # for all answers, which the first of these tests waits for
@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_always_fits_its_schema(answers: list[Choice], seed: int):
    choice = answers[seed]
    assert choice.finish_reason == "stop"
    jsonschema_rs.validate(schema_of(seed), json.loads(choice.message.content))


def test_streamed_equals_buffered(gateway: Gateway):
    fields = {"model": MODEL, "messages": ASK, "seed": 3, "response_format": of_schema(WEATHER)}
    whole = gateway.client().chat.completions.create(**fields).choices[0].message.content
    chunks = gateway.client().chat.completions.create(stream=True, **fields)
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == whole


def test_the_official_client_parses(gateway: Gateway):
    class Town(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        population: int
        coastal: bool

    parsed = gateway.client().beta.chat.completions.parse(
        model=MODEL, messages=ASK, seed=1, max_tokens=200, response_format=Town
    )
    assert isinstance(parsed.choices[0].message.parsed, Town)
    with gateway.client().beta.chat.completions.stream(
        model=MODEL, messages=ASK, seed=1, max_tokens=200, response_format=Town
    ) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed.choices[0].message.parsed


def test_other_constraints(gateway: Gateway):
    def said(**extra):
        client = gateway.client()
        answer = client.chat.completions.create(model=MODEL, messages=ASK, seed=5, max_tokens=100, extra_body=extra)
        return answer.choices[0].message.content

    assert said(guided_choice=["Oslo", "Bergen"]) in ("Oslo", "Bergen")
    assert said(structured_outputs={"regex": "[A-C]{3}"}) in {a + b + c for a in "ABC" for b in "ABC" for c in "ABC"}
    assert said(ebnf='root ::= "yes" | "no"') in ("yes", "no")
    assert isinstance(
        json.loads(said(json_schema={"type": "array", "items": {"type": "boolean"}, "maxItems": 3})), list
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("which", ["gateway", "hermes"])
def test_a_forced_choice_always_is_a_valid_call(
    request: pytest.FixtureRequest, which: str, seed: int, choice: object, stream: bool
):
    """As JSON (``gateway``: the model's own form is not known), and in tags (``hermes``)."""
    client = request.getfixturevalue(which).client()
    fields = {
        "model": MODEL,
        "messages": ASK,
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "seed": seed,
        "temperature": 1.0,
        "max_tokens": 300,
    }
    if stream:
        with client.chat.completions.stream(**fields) as events:
            answer = events.get_final_completion()
    else:
        answer = client.chat.completions.create(**fields)
    [call] = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert not answer.choices[0].message.content
    assert choice == "required" or call.function.name == "get_weather"
    jsonschema_rs.validate(SCHEMAS[call.function.name], json.loads(call.function.arguments))


@pytest.mark.parametrize(
    ("syntax", "definition", "pattern"),
    [
        (
            "lark",
            'start: WORD (" " OP " " WORD)~1..2\nOP: "and" | "or"\nWORD: /[a-z]{2,6}/',
            r"[a-z]{2,6}( (and|or) [a-z]{2,6}){1,2}",
        ),
        ("regex", r"[A-Z][a-z]{1,5}, \d{2}", r"[A-Z][a-z]{1,5}, \d{2}"),
    ],
)
def test_a_custom_tool_s_input_always_fits_its_grammar(hermes: Gateway, syntax: str, definition: str, pattern: str):
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    tool = {"type": "custom", "custom": {"name": "say", "format": grammar}}
    for seed in range(3):
        answer = hermes.client().chat.completions.create(
            model=MODEL,
            messages=ASK,
            tools=[tool],
            tool_choice={"type": "custom", "custom": {"name": "say"}},
            seed=seed,
            temperature=1.0,
            max_tokens=200,
        )
        [call] = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert re.fullmatch(pattern, call.custom.input)


@pytest.mark.parametrize("family", ["pythonic", "gemma4", "minimax_m3"])
def test_a_forced_call_in_forms_that_are_no_JSON(engine: str, tmp_path: Path, family: str):
    """Of tools without free texts, which a small model may never end."""
    with running(settings(tmp_path, "--worker-urls", engine, "--tool-call-parser", family)) as gateway:
        for seed in range(2):
            answer = gateway.client().chat.completions.create(
                model=MODEL,
                messages=ASK,
                tools=TOOLS[1:],
                tool_choice="required",
                parallel_tool_calls=False,
                seed=seed,
                temperature=1.0,
                max_tokens=300,
            )
            [call] = answer.choices[0].message.tool_calls
            assert answer.choices[0].finish_reason == "tool_calls"
            jsonschema_rs.validate(SCHEMAS[call.function.name], json.loads(call.function.arguments))


def test_a_call_or_an_answer_that_fits(hermes: Gateway):
    """SO-03 on a real engine: structural tags admit either."""
    for seed in range(4):
        answer = hermes.client().chat.completions.create(
            model=MODEL,
            messages=ASK,
            tools=TOOLS,
            seed=seed,
            max_tokens=300,
            temperature=1.0,
            parallel_tool_calls=False,
            response_format=of_schema(MOOD),
        )
        message = answer.choices[0].message
        for call in message.tool_calls or []:
            jsonschema_rs.validate(SCHEMAS[call.function.name], json.loads(call.function.arguments))
        if not message.tool_calls:
            jsonschema_rs.validate(MOOD, json.loads(message.content))


def test_a_schema_that_the_engine_cannot_follow_is_a_422(gateway: Gateway):
    schema = {"type": "string", "pattern": "(?<=a)b"}
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        gateway.client().chat.completions.create(model=MODEL, messages=ASK, response_format=of_schema(schema))
    assert (caught.value.code, caught.value.param) == ("constraint_failed", "response_format")
