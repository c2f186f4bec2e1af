"""The official client through a gateway to HTTP engines: mocks as processes, and another gateway with a real model."""

import contextlib

import httpx
import openai
import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import MODEL, running, settings, wait_for

pytestmark = pytest.mark.e2e
QUESTION = [{"role": "user", "content": "x"}]


def test_mock_engines_of_all_kinds(tmp_path):
    kinds = ("http", "vllm-http", "sglang-http")
    with contextlib.ExitStack() as stack:
        urls = []
        for kind in kinds:
            process = mock_process("--contract", kind, "--model", kind, "--text", f"hello from {kind}")
            urls.append(f"http://{stack.enter_context(process)}")
        gateway = stack.enter_context(running(settings(tmp_path, "--worker-urls", *urls, "--workers", "2")))
        client = gateway.client()
        wait_for(lambda: {model.id for model in client.models.list().data} == set(kinds), 20, "three models")
        for kind in kinds:
            whole = client.chat.completions.create(model=kind, messages=QUESTION)
            assert whole.choices[0].message.content == f"hello from {kind}"
            stream = client.chat.completions.create(model=kind, messages=QUESTION, stream=True)
            text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
            assert text == f"hello from {kind}"
            completion = client.completions.create(model=kind, prompt="x")
            assert completion.choices[0].text == f"hello from {kind}"
            generated = httpx.post(f"{gateway.url}/generate", json={"model": kind, "text": "x"}).json()
            assert generated["text"] == f"hello from {kind}"
        assert gateway.metric("smg_router_tokens_total") > 0
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="nope", messages=QUESTION)


def test_a_dying_engine_costs_no_request(tmp_path):
    with (
        mock_process("--contract", "vllm-http", "--text", "fine", "--fault", "eof") as dying,
        mock_process("--contract", "vllm-http", "--text", "fine") as well,
        running(settings(tmp_path, "--worker-urls", f"http://{dying}", f"http://{well}")) as gateway,
    ):
        client = gateway.client()
        wait_for(lambda: len(gateway.get("/workers").json()["workers"]) == 2, 10, "two workers")
        for _ in range(10):
            whole = client.chat.completions.create(model="mock-model", messages=QUESTION)
            assert whole.choices[0].message.content == "fine"


def test_a_gateway_behind_a_gateway_with_a_real_model(gateway, tmp_path):
    inner = gateway
    with running(settings(tmp_path, "--worker-urls", inner.url)) as outer:
        options = {"model": MODEL, "temperature": 0, "max_tokens": 16, "seed": 1}
        messages = [{"role": "user", "content": "Name a colour."}]
        direct = inner.client().chat.completions.create(messages=messages, **options)
        through = outer.client().chat.completions.create(messages=messages, **options)
        assert through.choices[0].message.content == direct.choices[0].message.content
        assert through.usage.total_tokens == direct.usage.total_tokens
        stream = outer.client().chat.completions.create(messages=messages, stream=True, **options)
        text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
        assert text == direct.choices[0].message.content
        completion = outer.client().completions.create(prompt="The sea is", **options)
        assert (
            completion.choices[0].text
            == inner.client().completions.create(prompt="The sea is", **options).choices[0].text
        )
        generated = httpx.post(
            f"{outer.url}/generate", json={"text": "The sea is", "sampling_params": {"max_new_tokens": 8}}, timeout=60
        ).json()
        assert generated["meta_info"]["completion_tokens"] > 0
        tokens = httpx.post(f"{outer.url}/v1/tokenize", json={"model": MODEL, "prompt": "The sea"}).json()
        assert tokens == httpx.post(f"{inner.url}/v1/tokenize", json={"model": MODEL, "prompt": "The sea"}).json()
        with pytest.raises(openai.BadRequestError):
            outer.client().chat.completions.create(messages=[], **options)
        wait_for(lambda: inner.engine_running() == 0, 10, "an idle engine")
