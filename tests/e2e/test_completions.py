"""Completions, generate and tokenize on a real model: what is streamed, buffered, scored and counted agrees."""

import httpx
import pytest

from tests.api.serving import frames
from tests.gateway import MODEL, Gateway

pytestmark = pytest.mark.e2e

PROMPTS = ["The capital of France is", "Rain falls 🌧 on", "1, 2, 3, 4,"]
OPTIONS = {"model": MODEL, "max_tokens": 12, "temperature": 0, "seed": 5}


def test_streamed_equals_buffered_for_several_prompts(gateway: Gateway):
    client = gateway.client()
    whole = client.completions.create(prompt=PROMPTS, logprobs=2, **OPTIONS)
    texts, offsets, usage = {}, {}, None
    for chunk in client.completions.create(
        prompt=PROMPTS, logprobs=2, stream=True, stream_options={"include_usage": True}, **OPTIONS
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            offsets[choice.index] = offsets.get(choice.index, []) + (
                choice.logprobs.text_offset if choice.logprobs else []
            )
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert offsets == {choice.index: choice.logprobs.text_offset for choice in whole.choices}
    assert all(text.strip() for text in texts.values())
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)


def test_each_prompt_is_answered_as_if_it_had_come_alone(gateway: Gateway):
    client = gateway.client()
    together = client.completions.create(prompt=PROMPTS, **OPTIONS)
    alone = [client.completions.create(prompt=prompt, **OPTIONS) for prompt in PROMPTS]
    assert [choice.text for choice in together.choices] == [one.choices[0].text for one in alone]
    assert together.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)


def test_token_ids_are_the_text_they_stand_for(gateway: Gateway):
    client = gateway.client()
    told = httpx.post(f"{gateway.url}/v1/tokenize", json={"prompt": PROMPTS[0], "add_special_tokens": True}).json()
    text = client.completions.create(prompt=PROMPTS[0], echo=True, **OPTIONS)
    ids = client.completions.create(prompt=told["tokens"], echo=True, **OPTIONS)
    assert text.choices[0].text == ids.choices[0].text
    assert text.choices[0].text.startswith(PROMPTS[0])
    assert ids.usage.prompt_tokens == told["count"] == text.usage.prompt_tokens


def test_the_prompt_s_own_log_probabilities(gateway: Gateway):
    options = OPTIONS | {"max_tokens": 0}
    (likely,) = (
        gateway.client()
        .completions.create(prompt="The capital of France is Paris", echo=True, logprobs=1, **options)
        .choices
    )
    rows = likely.logprobs
    assert (likely.text, likely.finish_reason) == ("The capital of France is Paris", "length")
    assert rows.token_logprobs[0] is None
    assert all(value <= 0 for value in rows.token_logprobs[1:])
    assert "".join(rows.tokens).endswith("Paris")
    # It knows the answer better than the beginning of the question.
    assert rows.token_logprobs[-1] > rows.token_logprobs[1]
    for token, offset in zip(rows.tokens, rows.text_offset, strict=True):
        assert likely.text.startswith(token, offset)


def test_generate_streams_what_it_buffers(gateway: Gateway):
    body = {"text": PROMPTS[:2], "sampling_params": {"temperature": 0, "max_new_tokens": 12}, "return_logprob": True}
    whole = httpx.post(f"{gateway.url}/generate", json=body, timeout=60).json()
    *parts, done = frames(httpx.post(f"{gateway.url}/generate", json=body | {"stream": True}, timeout=60).content)
    assert done == "data: [DONE]"
    last = {part["index"]: part for part in parts}
    for index, item in enumerate(whole):
        assert last[index]["text"] == item["text"]
        assert item["meta_info"]["completion_tokens"] == len(item["output_ids"])
        assert len(item["meta_info"]["output_token_logprobs"]) == len(item["output_ids"])
        told = httpx.post(f"{gateway.url}/v1/detokenize", json={"tokens": item["output_ids"]}).json()
        assert told["text"] == item["text"]


def test_a_conversation_is_counted_as_it_is_generated_from(gateway: Gateway):
    turns = [{"role": "user", "content": "Hello, 世界!"}]
    told = httpx.post(f"{gateway.url}/v1/tokenize", json={"messages": turns}).json()
    answer = gateway.client().chat.completions.create(model=MODEL, messages=turns, max_tokens=1)
    assert told["count"] == answer.usage.prompt_tokens


def test_a_suffix_is_refused_by_a_model_that_cannot_fill_gaps(gateway: Gateway):
    body = {"prompt": "def f(", "suffix": "return x"}
    response = httpx.post(f"{gateway.url}/v1/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "suffix")


def test_information(gateway: Gateway):
    info = gateway.get("/get_model_info").json()
    assert (info["served_model_name"], info["is_generation"]) == (MODEL, True)
    assert info["context_length"] > 0
    server = gateway.get("/get_server_info").json()
    assert (server["request_processes"], server["healthy_workers"], server["models"]) == (2, 1, [MODEL])
