"""Every **[FIX]** of spec text-pipeline 8 to 13 by name, and what its section 11 asks of streams: through everything
but the processes. (Those of sections 14 and 15 are with their dialects.)"""

import itertools
import json

import httpx
import openai
import pytest

from smg.engine_server.mock import Script
from tests.parsing.test_end_to_end import CALLS, HI, TOOLS, ask, gateway
from tests.parsing.writers import WRITERS


async def frames(client, path, body):
    """The objects of a stream of server-sent events."""
    url = str(client.base_url).removesuffix("/v1/") + path
    async with httpx.AsyncClient(timeout=30) as http, http.stream("POST", url, json=body) as answer:
        lines = [line async for line in answer.aiter_lines()]
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("arguments", ["", "{}", "null"])
async def test_FIX_8_arguments_of_an_earlier_call_that_are_empty(tmp_path, arguments):
    call = {"id": "c", "type": "function", "function": {"name": "ping", "arguments": arguments}}
    history = [*HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}]
    async with gateway(tmp_path, Script.text("Fine."), tool_call_parser="hermes") as client:
        assert await ask(client, messages=history) == ("", "Fine.", [], "stop")


async def test_FIX_10_the_prompt_of_several_choices_is_counted_once(tmp_path):
    async with gateway(tmp_path, Script.text("one two")) as client:
        usage = {}
        for n in (1, 3):
            whole = await client.chat.completions.create(model="mock", messages=HI, n=n)
            stream = await client.chat.completions.create(
                model="mock", messages=HI, n=n, stream=True, stream_options={"include_usage": True}
            )
            told = [chunk.usage async for chunk in stream if chunk.usage]
            assert told[-1].model_dump() == whole.usage.model_dump()
            usage[n] = whole.usage
    assert usage[3].prompt_tokens == usage[1].prompt_tokens
    assert usage[3].completion_tokens == 3 * usage[1].completion_tokens


@pytest.mark.parametrize("split", ["word", "byte"])
async def test_FIX_11_text_held_for_a_stop_string_goes_through_the_parsers_at_the_end(tmp_path, split):
    """The stop string begins like the closer, so the end of the call is held until the output is over."""
    text = "<think>r</think>Well. " + WRITERS["qwen"](CALLS)
    parsers = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}
    async with gateway(tmp_path, Script.text(text, split=split), **parsers) as client:
        reasoning, content, calls, reason = await ask(client, stop=["</tool_call>!!"])
    assert (reasoning, content, reason) == ("r", "Well. ", "tool_calls")
    assert [(name, json.loads(arguments)) for name, arguments in calls] == CALLS


@pytest.mark.parametrize("text", ["", "<think>", "<tool_call>"])
async def test_FIX_11_the_role_comes_also_where_no_text_does(tmp_path, text):
    parsers = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3"}
    async with gateway(tmp_path, Script.text(text), **parsers) as client:
        stream = await client.chat.completions.create(model="mock", messages=HI, tools=TOOLS, stream=True)
        first, *rest = [choice async for chunk in stream for choice in chunk.choices]
    assert (first.delta.role, first.finish_reason) == ("assistant", None)
    assert rest[-1].finish_reason == "stop"
    assert [choice.delta.role for choice in rest] == [None] * len(rest)


async def test_FIX_12_log_probabilities_of_completions(tmp_path):
    async with gateway(tmp_path, Script.text("one two")) as client:
        fields = {"model": "mock", "prompt": "hi", "logprobs": 2}
        whole = (await client.completions.create(**fields)).choices[0]
        stream = await client.completions.create(stream=True, **fields)
        parts = [chunk.choices[0].logprobs async for chunk in stream if chunk.choices and chunk.choices[0].logprobs]
    found = whole.logprobs
    assert "".join(found.tokens) == whole.text == "one two"
    assert found.text_offset == [0, *(len("".join(found.tokens[: n + 1])) for n in range(len(found.tokens) - 1))]
    assert all(value <= 0 for value in found.token_logprobs)
    assert {len(top) for top in found.top_logprobs} <= {2, 3}
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [item for part in parts for item in getattr(part, name)] == getattr(found, name)


@pytest.mark.parametrize("per_chunk", [1, 3])
async def test_FIX_13_streams_of_generate(tmp_path, per_chunk):
    """Characters come whole, stop strings stop, what has been said is said again, and the reason is an object."""
    script = Script.text("grün 😀 and STOP here", split="byte", per_chunk=per_chunk)
    body = {"text": "hi", "stream": True, "sampling_params": {"stop": ["STOP"], "max_new_tokens": 64}}
    async with gateway(tmp_path, script) as client:
        found = await frames(client, "/generate", body)
    texts = [frame["text"] for frame in found]
    assert texts[-1] == "grün 😀 and "
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert "\ufffd" not in "".join(texts)
    assert [frame["meta_info"]["finish_reason"] for frame in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1]["meta_info"]["finish_reason"] == {"type": "stop", "matched": "STOP"}


async def test_FIX_13_several_prompts_of_generate(tmp_path):
    async with gateway(tmp_path, Script.text("one two")) as client:
        url = str(client.base_url).removesuffix("/v1/") + "/generate"
        async with httpx.AsyncClient(timeout=30) as http:
            answer = (await http.post(url, json={"text": ["a", "b"]})).json()
    assert [one["text"] for one in answer] == ["one two", "one two"]


async def test_FIX_10_reasoning_that_is_not_wanted_apart_stays_in_the_answer(tmp_path):
    async with gateway(tmp_path, Script.text("<think>r</think>c"), reasoning_parser="qwen3") as client:
        fields = {"tools": openai.omit, "extra_body": {"separate_reasoning": False}}
        assert await ask(client, **fields) == ("", "<think>r</think>c", [], "stop")
