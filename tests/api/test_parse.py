"""Parsers over HTTP (spec api-and-ops 1.10)."""

import pytest

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"n": {}}}}}
QWEN = '<tool_call>\n{"name": "f", "arguments": {"n": 3}}\n</tool_call>'


async def test_calls_and_what_is_left(post):
    body = {"text": f"Well. {QWEN} Done.", "tool_call_parser": "hermes", "tools": [TOOL]}
    status, answer = await post("/parse/function_call", body)
    assert status == 200
    [call] = answer["tool_calls"]
    assert call["id"].startswith("call_")
    assert call | {"id": ""} == {
        "id": "",
        "type": "function",
        "function": {"name": "f", "arguments": '{"n": 3}'},
        "complete": True,
    }
    assert (answer["remaining_text"], answer["success"]) == ("Well.  Done.", True)


async def test_a_text_without_calls_is_left_as_it_is(post):
    body = {"text": "<tool_call>no", "tool_call_parser": "qwen"}
    assert await post("/parse/function_call", body) == (
        200,
        {"remaining_text": "<tool_call>no", "tool_calls": [], "success": True},
    )


async def test_by_default_the_model_s_own_parsers(post):
    # The mock's template does not show how its model thinks or calls.
    _, answer = await post("/parse/function_call", {"text": QWEN, "model": "mock"})
    assert answer["remaining_text"] == QWEN
    _, answer = await post("/parse/reasoning", {"text": "<think>a</think>b"})
    assert answer["normal_text"] == "<think>a</think>b"


@pytest.mark.parametrize(
    ("fields", "reasoning", "normal"),
    [
        ({"text": "<think>a</think>b"}, "a", "b"),
        ({"text": "a</think>b", "in_reasoning": True}, "a", "b"),
        ({"text": "plain"}, "", "plain"),
        ({"text": "[THINK]a[/THINK]b", "reasoning_parser": "mistral"}, "a", "b"),
        ({"text": "a", "reasoning_parser": "deepseek_r1"}, "a", ""),
        ({"text": "x" * 40_000}, "", "x" * 40_000),
    ],
)
async def test_reasoning(post, fields, reasoning, normal):
    status, answer = await post("/parse/reasoning", {"reasoning_parser": "qwen3"} | fields)
    assert (status, answer) == (200, {"normal_text": normal, "reasoning_text": reasoning, "success": True})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/parse/function_call", {"text": "a", "tool_call_parser": "nope"}, "tool_call_parser"),
        ("/parse/reasoning", {"text": "a", "reasoning_parser": "nope"}, "reasoning_parser"),
        ("/parse/function_call", {"text": "a", "tool_call_parser": "qwen", "tools": [{"type": "x"}]}, "tools[0].type"),
        ("/parse/reasoning", {"text": 3}, "text"),
    ],
)
async def test_what_is_wrong_names_the_field(post, path, body, param):
    status, answer = await post(path, body)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_without_a_text(post):
    status, answer = await post("/parse/reasoning", {})
    assert status == 400
    assert "text" in answer["error"]["message"]
