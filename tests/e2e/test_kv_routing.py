"""Requests are routed by what real engines hold, as they tell it themselves (spec routing 3)."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway import MODEL, WEIGHTS, Gateway, body, running, settings, wait_for

pytestmark = pytest.mark.e2e

SYSTEM = "You answer briefly and in plain words. " * 12


@contextlib.contextmanager
def engine() -> Iterator[str]:
    """A real engine with one slot: the next conversation takes the place of the one before."""
    command = [sys.executable, "-m", "smg.cli.engine", "llama", "--port", "0", "--slots", "1"]
    command += ["--weights", "q8", "--state-dir", str(WEIGHTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["ready"]
        finally:
            process.terminate()
            process.wait(20)


def ask(gateway: Gateway, system: str, question: str) -> dict[str, str]:
    """Send a chat of few tokens; returns the routing decision."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", content=body(messages=messages, max_tokens=2), timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(part.split("=") for part in answer.headers["x-smg-routing-decision"].split("; "))


def test_a_prefix_is_where_the_engine_says_and_gone_when_it_says_so(tmp_path):
    flags = ("--workers", "2", "--routing-decision-header", "--cache-request-price", "0")
    with (
        engine() as first,
        engine() as second,
        running(settings(tmp_path, "--worker-urls", f"grpc://{first}", f"grpc://{second}", *flags)) as gateway,
    ):
        assert gateway.get("/v1/models").json()["data"][0]["id"] == MODEL
        wait_for(lambda: gateway.metric("smg_worker_health") == 2, 30, "both engines")
        holder = ask(gateway, SYSTEM, "What is the sea?")["worker"]
        wait_for(lambda: gateway.metric("smg_kv_event_blocks") > 4, 10, "events of the first prompt")
        wait_for(lambda: gateway.metric("smg_kv_event_state") >= 2, 10, "a live feed")
        again = ask(gateway, SYSTEM, "What is a lake?")
        matched, total = map(int, again["matched"].split("/"))
        assert (again["worker"], again["reason"]) == (holder, "prefix")
        assert total * 0.6 < matched < total
        # Another conversation on both engines: what was sent before is no longer there, whatever the gateway remembers.
        used = set()
        for word in ("river", "mountain", "desert", "forest", "island", "glacier"):
            used.add(ask(gateway, f"Speak only of the {word}, please. " * 12, "Go on.")["worker"])
            if len(used) == 2:
                break
        assert len(used) == 2
        held = gateway.metric("smg_kv_event_blocks")
        wait_for(lambda: gateway.metric("smg_kv_event_state") == 4, 10, "both feeds live")
        assert held > 0
        assert ask(gateway, SYSTEM, "What is the sea?")["reason"] == "load"
        assert gateway.metric("smg_kv_event_gaps_total") == 0
