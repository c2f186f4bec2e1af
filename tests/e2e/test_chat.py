"""Chat completions through the official client on a real model: streamed and buffered say the same."""

import asyncio

import openai
import pytest

from tests.gateway import MODEL, Gateway

pytestmark = pytest.mark.e2e

PROMPTS = ["What is the capital of France?", "Write a haiku about rain. 🌧", "Zähle bis fünf.", "1+1="]


async def streamed(client: openai.AsyncOpenAI, prompt: str, **options):
    text, reasons, usage, deltas = "", [], None, 0
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            deltas += bool(choice.delta.content)
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
        usage = chunk.usage or usage
    return text, reasons, usage, deltas


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_streamed_equals_buffered_for_a_seeded_request(gateway: Gateway, prompt: str):
    client = gateway.async_client()
    options = {"seed": 7, "temperature": 0.8, "max_tokens": 48}
    text, reasons, usage, deltas = await streamed(client, prompt, **options)
    whole = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": prompt}], **options)
    assert text == whole.choices[0].message.content
    assert reasons == [whole.choices[0].finish_reason]
    assert reasons[0] in ("stop", "length")
    assert text.strip()
    assert deltas > 1
    assert whole.usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert 0 < whole.usage.completion_tokens <= 48


async def test_seeded_streams_beside_each_other_agree(gateway: Gateway):
    client = gateway.async_client()
    options = {"seed": 11, "temperature": 1.0, "max_tokens": 24}
    answers = await asyncio.gather(*(streamed(client, PROMPTS[0], **options) for _ in range(6)))
    assert len({text for text, *_ in answers}) == 1


async def test_stop_string_ends_the_answer(gateway: Gateway):
    client = gateway.async_client()
    options = {"seed": 3, "temperature": 0.7, "max_tokens": 64}
    full, *_ = await streamed(client, PROMPTS[0], **options)
    stop = full.split()[3]
    text, reasons, *_ = await streamed(client, PROMPTS[0], stop=[stop], **options)
    assert text == full[: full.index(stop)]
    assert reasons == ["stop"]


def test_models(gateway: Gateway):
    listed = gateway.client().models.list().data
    assert [model.id for model in listed] == [MODEL]


def test_unknown_model_and_bad_values_are_client_errors(gateway: Gateway):
    client = gateway.client()
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}], temperature=9)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 20_000}])
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "messages")


def test_probes_and_metrics(gateway: Gateway):
    assert gateway.get("/health").status_code == 200
    assert gateway.get("/liveness").status_code == 200
    assert gateway.get("/readiness").json()["status"] == "ready"
    gateway.client().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "x"}], max_tokens=2, temperature=0
    )
    assert gateway.metric("smg_router_requests_total") >= 1
    assert gateway.metric("smg_router_tokens_total") > 2
    pages = {
        tuple(sorted(line for line in gateway.get("/metrics").text.splitlines() if "router_tokens" in line))
        for _ in range(6)
    }
    assert len(pages) == 1, "every worker shows the same page"
