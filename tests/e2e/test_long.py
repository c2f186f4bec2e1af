"""Answers that take long are not cut: 90 seconds, streamed and buffered, at the same time."""

import asyncio
import time

import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import running, settings

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(200)]

SECONDS = 90
TOKENS = 300


async def test_a_90_s_stream_and_a_90_s_buffered_request_end_right(tmp_path):
    delay = SECONDS * 1000 // TOKENS
    with (
        mock_process("--delay-token-ms", str(delay), "--tokens", str(TOKENS), "--model", "slow") as address,
        running(settings(tmp_path, "--worker-urls", f"grpc://{address}")) as gateway,
    ):
        client = gateway.async_client(timeout=150)
        question = {"model": "slow", "messages": [{"role": "user", "content": "x"}], "max_tokens": TOKENS}

        async def stream() -> tuple[str, str | None]:
            text, reason = "", None
            async for chunk in await client.chat.completions.create(stream=True, **question):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    reason = choice.finish_reason or reason
            return text, reason

        start = time.monotonic()
        (text, reason), whole = await asyncio.gather(stream(), client.chat.completions.create(**question))
        assert time.monotonic() - start > SECONDS * 0.95
        assert reason == whole.choices[0].finish_reason
        assert text == whole.choices[0].message.content
        assert whole.usage.completion_tokens == TOKENS
        assert gateway.metric("smg_requests_inflight") == 0
