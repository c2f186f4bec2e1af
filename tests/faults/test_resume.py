"""A real engine is killed in the middle of an answer: at temperature 0 another one says the very same (routing 6)."""

import contextlib
import json
import os
import signal

import httpx
import pytest

from tests.engines_for_tests import engine_process
from tests.gateway import MODEL, WEIGHTS, Gateway, body, running, settings, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ASKED = {"model": MODEL, "temperature": 0, "max_tokens": 100, "stream_options": {"include_usage": True}}


def engine():
    return engine_process("llama", "--weights", "q8", "--state-dir", str(WEIGHTS), "--slots", "2")


def events(gateway: Gateway, kill: dict[str, int] | None = None) -> list[dict]:
    """The events of one stream; with ``kill`` (process by engine URL) its engine dies after some of them."""
    asked = body(**ASKED, stream=True)
    found = []
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", content=asked, timeout=60) as answer:
        for line in filter(None, answer.iter_lines()):
            found.append(line.removeprefix("data: "))
            if kill is not None and len(found) == 12:
                os.kill(kill[url_of(gateway, answer.headers["x-smg-worker"])], signal.SIGKILL)
    assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


def url_of(gateway: Gateway, worker: str) -> str:
    return gateway.get(f"/workers/{worker}").json()["url"]


def said(found: list[dict]) -> str:
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in found if event["choices"])


@pytest.mark.parametrize("transport", ["grpcio", "native"])
def test_the_text_equals_that_of_the_uncut_run(tmp_path, transport):
    with contextlib.ExitStack() as stack:
        engines = {f"grpc://{address}": pid for address, pid in (stack.enter_context(engine()) for _ in range(2))}
        flags = ("--worker-urls", *engines, "--worker-header", "--engine-transport", transport)
        gateway = stack.enter_context(running(settings(tmp_path, *flags)))
        wait_for(lambda: gateway.metric("smg_worker_health") == 2, 30, "both engines")
        whole = events(gateway)
        cut = events(gateway, kill=engines)
        assert gateway.metric("smg_worker_resumes_total") == 1
        assert said(cut) == said(whole)
        assert len(said(whole)) > 100
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert cut[-1]["usage"][count] == whole[-1]["usage"][count]
        assert cut[-2]["choices"][0]["finish_reason"] == whole[-2]["choices"][0]["finish_reason"]
        wait_for(lambda: gateway.metric("smg_worker_requests_active") == 0, 5, "nothing counted any more")
