"""Chat through everything but the processes: OpenAI's client, Sanic, the real services, gRPC, the mock engine."""

import openai
import pytest

from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.conftest import idle, say

HI = [{"role": "user", "content": "hi"}]


async def streamed(client, **fields):
    """Assemble a stream the way clients do; returns text, finish reasons and usage by choice."""
    texts, reasons, usage = {}, {}, None
    async for chunk in await client.chat.completions.create(model="mock", messages=HI, stream=True, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    return texts, reasons, usage


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (Script.text("hello there, world"), {}),
        (Script.text("one", "two and more"), {"n": 2}),
        (Script.text("naïve 😀 日本", split="byte"), {}),
        (Script.text("before STOP after"), {"stop": ["STOP"]}),
        (Script.text("one. two. three"), {"stop": ["."]}),
        (Script.text("a long answer that is cut"), {"max_tokens": 3}),
        (Script.text("with logprobs"), {"logprobs": True, "top_logprobs": 2}),
        (Script.text("held to the end ##"), {"stop": ["###"]}),
    ],
)
async def test_streamed_and_buffered_answers_agree(client, gateway, engines, script, fields):
    say(engines, script)
    whole = await client.chat.completions.create(model="mock", messages=HI, **fields)
    texts, reasons, usage = await streamed(client, stream_options={"include_usage": True}, **fields)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage
    assert usage.prompt_tokens == len(mock.encode_text("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"))
    await idle(gateway, engines)
    if "STOP" not in str(fields):
        # Every other end is the engine's own and must not be answered with an Abort (field case TX-07).
        assert [engine.aborted for engine in engines] == [[], []]


async def test_logprobs_have_one_entry_per_token(client, engines):
    say(engines, Script.text("as you like"))
    whole = await client.chat.completions.create(model="mock", messages=HI, logprobs=True, top_logprobs=1)
    content = whole.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in content).decode() == whole.choices[0].message.content
    assert all(len(entry.top_logprobs) == 1 for entry in content)


async def test_RL_04_a_client_that_leaves_stops_its_engine(client, gateway, engines):
    say(engines, Script.text("word " * 500, chunk_delay=0.01))
    stream = await client.chat.completions.create(model="mock", messages=HI, stream=True)
    await anext(aiter(stream))
    await stream.close()
    await idle(gateway, engines)
    (state,) = [request.state for engine in engines for request in engine.requests]
    assert state in ("aborted", "cancelled")


async def test_RL_03_an_engine_that_is_down_costs_nothing(client, gateway, engines):
    say(engines, Script.text("fine"))
    await engines[0].kill()
    for _ in range(2):
        whole = await client.chat.completions.create(model="mock", messages=HI)
        assert whole.choices[0].message.content == "fine"


async def test_an_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="nope", messages=HI)
    assert caught.value.code == "model_not_found"


async def test_a_prompt_that_is_too_long(client):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="mock", messages=[{"role": "user", "content": "word " * 5000}])
    assert caught.value.code == "context_length_exceeded"


async def test_models(client):
    assert [model.id async for model in await client.models.list()] == ["mock"]
    assert (await client.models.retrieve("mock")).id == "mock"
