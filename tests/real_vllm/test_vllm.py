"""A real vLLM behind the gateway: streams, aborts, cached tokens, two replicas (scripts/test --real-vllm)."""

import time

import httpx
import pytest

from tests.gateway import running, settings
from tests.real_vllm.conftest import LONG, name_of

pytestmark = [pytest.mark.real_vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=["grpcio", "native"])
def gateway(request, engines, tmp_path_factory):
    configured = settings(
        tmp_path_factory.mktemp("state"), "--worker-urls", engines[0], "--engine-transport", request.param
    )
    with running(configured, ready=120) as found:
        yield found


def ask(gateway, text: str, **extra: object):
    return gateway.client(timeout=300).chat.completions.create(
        model=name_of(gateway),
        messages=[{"role": "user", "content": text}],
        **({"temperature": 0, "max_tokens": 40} | extra),
    )


def streamed(gateway, text: str, **extra: object) -> tuple[str, str | None, object]:
    answer, reason, usage = "", None, None
    for chunk in ask(gateway, text, stream=True, stream_options={"include_usage": True}, **extra):
        for choice in chunk.choices:
            answer += choice.delta.content or ""
            reason = choice.finish_reason or reason
        usage = chunk.usage or usage
    return answer, reason, usage


def test_streamed_equals_buffered(gateway):
    whole = ask(gateway, "Tell me about the sea.")
    text, reason, usage = streamed(gateway, "Tell me about the sea.")
    assert text == whole.choices[0].message.content
    assert len(text) > 20
    assert reason == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens <= 40
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_stop_string_ends_the_engine_s_work_too(gateway):
    full, *_ = streamed(gateway, "Count from one to twenty.", max_tokens=80)
    stop = full.split()[5]
    text, reason, _ = streamed(gateway, "Count from one to twenty.", max_tokens=80, stop=[stop])
    assert reason == "stop"
    assert text == full[: full.index(stop)]


def test_logprobs_belong_to_the_tokens(gateway):
    answer = ask(gateway, "Say hello.", max_tokens=8, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in content).startswith(answer.choices[0].message.content)
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in content)


def test_a_left_stream_is_aborted(gateway):
    before = gateway.metric("smg_engine_aborts_total")
    stream = ask(gateway, "Write a very long story.", max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    for _ in zip(stream, range(5), strict=False):
        pass
    stream.close()
    end = time.monotonic() + 20
    while gateway.metric("smg_engine_aborts_total") == before and time.monotonic() < end:
        time.sleep(0.2)
    assert gateway.metric("smg_engine_aborts_total") == before + 1
    # Of 1,500 tokens at some 20 ms each nothing is left to wait for: the engine answers at once.
    started = time.monotonic()
    ask(gateway, "Say hello.", max_tokens=1)
    assert time.monotonic() - started < 10


def test_cached_tokens_are_told(gateway):
    ask(gateway, LONG, max_tokens=1)
    again = ask(gateway, LONG, max_tokens=1)
    assert again.usage.prompt_tokens > 600
    assert again.usage.prompt_tokens_details.cached_tokens >= 576
    assert again.usage.prompt_tokens_details.cached_tokens % 32 == 0


def test_too_long_prompts_are_refused(gateway):
    answer = httpx.post(
        f"{gateway.url}/v1/chat/completions",
        json={"model": name_of(gateway), "messages": [{"role": "user", "content": LONG * 8}]},
        timeout=60,
    )
    assert answer.status_code == 400
    assert "2048" in answer.json()["error"]["message"]
