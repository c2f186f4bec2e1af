"""Chat completions through the official client on a real model: streamed and buffered say the same."""

import asyncio
from typing import NamedTuple

import openai
import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionTokenLogprob

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


class Choice(NamedTuple):
    """A choice, whichever way it came; ``rows`` are those of ``logprobs.content``."""

    text: str
    reason: str
    matched: str | int | None
    rows: list[ChatCompletionTokenLogprob]


async def both_ways(client: openai.AsyncOpenAI, prompt: str, **options) -> tuple[list[Choice], CompletionUsage]:
    """Ask for a stream and for a buffered answer, and see that they say the same. Returns the choices and the usage."""
    question = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **options}
    whole = await client.chat.completions.create(**question)
    buffered = {
        choice.index: Choice(
            choice.message.content,
            choice.finish_reason,
            choice.model_extra.get("matched_stop"),
            choice.logprobs.content if choice.logprobs else [],
        )
        for choice in whole.choices
    }
    folded: dict[int, Choice] = {}
    usage = None
    stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **question)
    async for chunk in stream:
        assert usage is None, "the usage comes last"
        usage = chunk.usage
        for choice in chunk.choices:
            before = folded.setdefault(choice.index, Choice("", "", None, []))
            assert not before.reason, "nothing comes after the end of a choice"
            folded[choice.index] = Choice(
                before.text + (choice.delta.content or ""),
                choice.finish_reason or "",
                choice.model_extra.get("matched_stop"),
                before.rows + ((choice.logprobs and choice.logprobs.content) or []),
            )
    assert folded == buffered
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    return [folded[index] for index in range(len(folded))], usage


SEEDED = [
    (PROMPTS[0], {}),
    (PROMPTS[1], {"n": 3}),
    (PROMPTS[2], {"n": 3, "stop": [",", " the"], "logprobs": True, "top_logprobs": 2}),
    (PROMPTS[3], {"logprobs": True, "top_logprobs": 0}),
]


@pytest.mark.parametrize(("prompt", "fields"), SEEDED)
async def test_streamed_equals_buffered_for_a_seeded_request(gateway: Gateway, prompt: str, fields: dict):
    options = {"seed": 7, "temperature": 0.8, "max_tokens": 32} | fields
    choices, usage = await both_ways(gateway.async_client(), prompt, **options)
    assert len(choices) == options.get("n", 1) == len({choice.text for choice in choices})
    assert all(choice.text.strip() for choice in choices)
    assert len(choices) <= usage.completion_tokens <= 32 * len(choices)
    if "stop" in fields:
        check_stopped(choices, fields["stop"])
    if "logprobs" in fields:
        check_rows(choices, usage, fields["top_logprobs"])


def check_stopped(choices: list[Choice], stops: list[str]) -> None:
    for choice in choices:
        assert not any(stop in choice.text for stop in stops)
        assert choice.matched is None or (choice.reason, choice.matched in stops) == ("stop", True)
    assert any(choice.matched for choice in choices)


def check_rows(choices: list[Choice], usage: CompletionUsage, top: int) -> None:
    """Each token of the text has a row, in order, and no other: what ends a choice is hidden, and so is its row."""
    for choice in choices:
        spelled = b"".join(bytes(row.bytes) for row in choice.rows).decode()
        # A stop string that is only a part of its token leaves the rest of it, and its row.
        assert spelled == choice.text or (choice.matched and spelled.startswith(choice.text))
        for row in choice.rows:
            assert row.logprob <= 0
            assert len(row.top_logprobs) == top
            assert all(best.logprob >= row.logprob for best in row.top_logprobs[:1])
    hidden = usage.completion_tokens - sum(len(choice.rows) for choice in choices)
    assert 0 <= hidden <= sum(choice.reason == "stop" for choice in choices)


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
