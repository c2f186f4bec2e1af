"""Responses through the official client on a real model."""

from typing import Literal

import httpx
import pydantic
import pytest

from tests.api.responses_events import folded, parsed
from tests.gateway import MODEL, Gateway

pytestmark = pytest.mark.e2e

SEEDED = {"extra_body": {"seed": 7}, "temperature": 0.8, "max_output_tokens": 32}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(pydantic.BaseModel):
    name: Literal["Oslo", "Rome"]
    capital: bool


def said(response) -> list[dict]:
    """The items but for their ids."""
    return [{name: value for name, value in item.to_dict().items() if "id" not in name} for item in response.output]


async def test_streamed_equals_buffered_for_a_seeded_request(gateway: Gateway):
    client = gateway.async_client()
    fields = {"model": MODEL, "input": "Write a haiku about rain. 🌧", "instructions": "Be brief.", **SEEDED}
    whole = await client.responses.create(**fields)
    deltas = ""
    async with client.responses.stream(**fields) as stream:
        async for event in stream:
            deltas += event.delta if event.type == "response.output_text.delta" else ""
    # The client has a final response only of streams that end as completed.
    last = event.response
    assert deltas == whole.output_text == last.output_text
    assert deltas.strip()
    assert (last.status, last.incomplete_details) == (whole.status, whole.incomplete_details)
    assert (last.usage.input_tokens, last.usage.output_tokens) == (whole.usage.input_tokens, whole.usage.output_tokens)
    assert 0 < whole.usage.output_tokens <= 32
    parsed(whole.to_dict())


def test_golden_rules(gateway: Gateway):
    body = {"model": MODEL, "input": "Count to five.", "stream": True, "max_output_tokens": 24, "temperature": 0}
    response = httpx.post(f"{gateway.url}/v1/responses", json=body, timeout=60)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert folded(response.content)["output"][0]["content"][0]["text"].strip()


async def test_structured_output_is_parsed(gateway: Gateway):
    client = gateway.async_client()
    fields = {"model": MODEL, "input": "Is Oslo a capital?", "text_format": City, "temperature": 0}
    response = await client.responses.parse(**fields, max_output_tokens=48)
    assert isinstance(response.output_parsed, City)
    assert response.text.format.type == "json_schema"


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "get_weather"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]},
    ],
    ids=["required", "named", "allowed"],
)
async def test_a_forced_call_and_its_result(gateway: Gateway, choice):
    client = gateway.async_client()
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    tools = [WEATHER, WEATHER | {"name": "get_time"}]
    tools = tools if isinstance(choice, dict) else tools[:1]
    fields = {"model": MODEL, "tools": tools, "temperature": 0, "max_output_tokens": 48}
    first = await client.responses.create(input=[question], tool_choice=choice, **fields)
    call = first.output[-1]
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert call.arguments.replace(" ", "") in ('{"city":"Oslo"}', '{"city":"Rome"}')
    async with client.responses.stream(input=[question], tool_choice=choice, **fields) as stream:
        streamed = await stream.get_final_response()
    assert streamed.output[-1].arguments == call.arguments
    # What came out goes in again as it is.
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees and rain"}
    items = [question, *(item.to_dict() for item in first.output), result]
    second = await client.responses.create(input=items, tool_choice="none", **fields)
    assert second.output_text.strip()
    assert second.usage.input_tokens > first.usage.input_tokens


async def test_a_conversation_is_sent_whole_each_time(gateway: Gateway):
    client = gateway.async_client()
    items = [{"role": "user", "content": "My name is Ada."}]
    first = await client.responses.create(model=MODEL, input=items, **SEEDED)
    items += [item.to_dict() for item in first.output]
    items.append({"role": "user", "content": "What is my name?"})
    counted = await client.responses.input_tokens.count(model=MODEL, input=items)
    second = await client.responses.create(model=MODEL, input=items, **SEEDED)
    assert counted.input_tokens == second.usage.input_tokens > first.usage.input_tokens
    again = await client.responses.create(model=MODEL, input=items, **SEEDED)
    assert said(again) == said(second)


async def test_log_probabilities(gateway: Gateway):
    client = gateway.async_client()
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "temperature": 0}
    response = await client.responses.create(model=MODEL, input="Hi", max_output_tokens=4, **asked)
    (part,) = response.output[0].content
    assert "".join(row.token for row in part.logprobs).strip() == part.text.strip()
    assert all(len(row.top_logprobs) == 2 for row in part.logprobs)
