"""Engines that break off in the middle (case MS-10): an error event, no end marker, nothing leaks."""

import httpx
import pytest

from smg.engine_server.mock import Fault, MockEngine, Script
from tests.api.serving import frames
from tests.engines_for_tests import mock_process
from tests.gateway import body, running, running_async, settings, wait_for

pytestmark = pytest.mark.e2e


def test_a_stream_that_breaks_ends_in_an_error_event(tmp_path):
    with (
        mock_process("--text", " one two day over", "--fault", "status@3") as address,
        running(settings(tmp_path, "--worker-urls", f"grpc://{address}")) as gateway,
    ):
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", content=body(model="mock-model", stream=True))
        *chunks, last = frames(answer.content)
        assert answer.status_code == 200
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == " one two day"
        assert last["error"]["code"] == "worker_stream_failed"
        wait_for(lambda: gateway.metric("smg_requests_inflight") == 0, 5, "nothing is counted any more")


@pytest.mark.parametrize("kind", ["status", "eof"])
async def test_a_buffered_answer_that_breaks_is_a_502(tmp_path, kind):
    script = Script.text(" one two three", faults=(Fault(kind=kind, after_chunks=2),))
    async with MockEngine(script) as engine, running_async(settings(tmp_path, "--worker-urls", engine.url)) as gateway:
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{gateway.url}/v1/chat/completions", content=body(model="mock-model"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_stream_failed")
        assert (engine.running, len(engine.requests)) == (0, 1)
