"""Answers that take long are not cut: 90 seconds, streamed and buffered, plain and over TLS, all at the same time."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.certificates import self_signed
from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, running, settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(200)]

SECONDS = 90
TOKENS = 300
QUESTION = {"model": "slow", "messages": [{"role": "user", "content": "x"}], "max_tokens": TOKENS}


def tls(directory: Path) -> tuple[str, ...]:
    files = self_signed(directory)
    return ("--tls-cert-path", files["tls_cert_path"], "--tls-key-path", files["tls_key_path"])


async def test_90_s_streams_and_90_s_buffered_requests_end_right(tmp_path):
    delay = SECONDS * 1000 // TOKENS
    with mock_process("--delay-token-ms", str(delay), "--tokens", str(TOKENS), "--model", "slow") as address:
        engine = ("--worker-urls", f"grpc://{address}")
        with (
            running(settings(tmp_path / "plain", *engine)) as plain,
            running(settings(tmp_path / "tls", *engine, *tls(tmp_path))) as encrypted,
        ):
            assert encrypted.url.startswith("https://")
            await asyncio.gather(check(plain), check(encrypted))


async def check(gateway: Gateway) -> None:
    client = gateway.async_client(timeout=150)

    async def stream() -> tuple[str, str | None]:
        text, reason = "", None
        async for chunk in await client.chat.completions.create(stream=True, **QUESTION):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
        return text, reason

    start = time.monotonic()
    (text, reason), whole = await asyncio.gather(stream(), client.chat.completions.create(**QUESTION))
    assert time.monotonic() - start > SECONDS * 0.95
    assert reason == whole.choices[0].finish_reason
    assert text == whole.choices[0].message.content
    assert whole.usage.completion_tokens == TOKENS
    assert gateway.metric("smg_requests_inflight") == 0
