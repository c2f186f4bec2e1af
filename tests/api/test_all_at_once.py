"""A schema, tools and a model that thinks, in one request: what docs/structured-output.md says of it."""

import json

import pytest

from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.test_structured_end_to_end import FORMAT, NAMED, TOOLS, message, metric, received, world
from tests.constraints.oracle import allows
from tests.parsing.writers import WRITERS

CALLS = [("get_weather", {"city": "Oslo"})]
ANSWER = '{"x": 1}'
THOUGHT = "Well {1}, or a call?"

# Reasoning and tool format; reasoning, an answer and a call as the model writes them; what its prompt ends with.
FAMILIES = {
    "qwen": ("qwen3_thinking", "qwen", f"{THOUGHT}</think>", ANSWER, WRITERS["qwen"](CALLS), ""),
    "kimi": ("kimi_thinking", "kimik2", f"{THOUGHT}</think>", ANSWER, WRITERS["kimik2"](CALLS), ""),
    "minimax": ("minimax", "minimax_m2", f"{THOUGHT}</think>", ANSWER, WRITERS["minimax_m2"](CALLS), ""),
    "step": ("step3", "step3", f"{THOUGHT}</think>", ANSWER, WRITERS["step3"](CALLS), ""),
    "gpt-oss": (
        "gpt_oss",
        "gpt_oss",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant",
        f"<|channel|>final<|constrain|>json<|message|>{ANSWER}",
        f"<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>{json.dumps(CALLS[0][1])}<|call|>",
        "<|start|>assistant",
    ),
}


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request):
    return request.param


def settings(tmp_path, family):
    reasoning, tools, *_, tail = family
    parsers = {"reasoning_parser": reasoning, "tool_call_parser": tools}
    if tail:
        path = tmp_path / "messages.jinja"
        path.write_text(mock.CHAT_TEMPLATE.replace("<|im_start|>assistant\n", tail))
        parsers["chat_template"] = str(path)
    return parsers


async def test_SO_03_reasoning_and_then_an_answer_by_the_schema_or_a_call(tmp_path, family):
    _, _, thought, answer, call, _ = family
    async with world(tmp_path, "x", **settings(tmp_path, family)) as (engines, services, client):
        for said, expected in (
            (thought + answer, (THOUGHT, ANSWER, [], "stop")),
            (thought + call, (THOUGHT, "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")),
        ):
            engines["vllm"].script = Script.text(said)
            assert await message(client, response_format=FORMAT, tools=TOOLS) == expected
            assert allows(received(engines["vllm"]), said)
        for wrong in (answer.replace("1", '"a"'), "Just text.", call.replace("city", "town")):
            assert not allows(received(engines["vllm"]), thought + wrong)
        assert await metric(services, "structured_output_invalid") == 0


@pytest.mark.parametrize("choice", ["required", NAMED])
async def test_SO_03_a_forced_call_behind_reasoning_leaves_the_schema_no_text(tmp_path, family, choice):
    _, _, thought, answer, call, _ = family
    said = Script.text(thought + call)
    async with world(tmp_path, said, **settings(tmp_path, family)) as (engines, services, client):
        answered = await message(client, response_format=FORMAT, tools=TOOLS, tool_choice=choice)
        assert answered == (THOUGHT, "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")
        assert allows(received(engines["vllm"]), thought + call)
        assert not allows(received(engines["vllm"]), thought + answer)
        assert await metric(services, "structured_output_invalid") == 0


async def test_SO_02_tools_that_are_forbidden_leave_the_schema_alone(tmp_path, family):
    _, _, thought, answer, call, _ = family
    async with world(tmp_path, Script.text(thought + answer), **settings(tmp_path, family)) as (engines, _, client):
        answered = await message(client, response_format=FORMAT, tools=TOOLS, tool_choice="none")
        assert answered == (THOUGHT, ANSWER, [], "stop")
        assert not allows(received(engines["vllm"]), thought + call)
