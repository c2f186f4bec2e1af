"""Somebody cleans up the state directory under a running gateway, and a process dies that would need what was there."""

import os
import shutil
import signal

import httpx
import pytest

from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Seconds until something has gone wrong; on a quiet machine it takes five.
PATIENCE = 45.0


def status(gateway: Gateway) -> int:
    try:
        return httpx.post(f"{gateway.url}/v1/chat/completions", content=body(max_tokens=2), timeout=20).status_code
    except httpx.TransportError:
        return 0


def test_a_worker_that_starts_after_the_loss_serves_again_and_control_can_be_asked(tmp_path):
    state = tmp_path / "state"
    with running(settings(state, "--embedded-engine")) as gateway:
        assert status(gateway) == 200
        shutil.rmtree(state)
        victim = gateway.child("worker-1")
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: status(gateway) == 200, PATIENCE, "an answer")
        assert gateway.child("worker-1") != victim
        assert [status(gateway) for _ in range(3)] == [200, 200, 200]
        wait_for(lambda: gateway.get("/workers").status_code == 200, PATIENCE, "control's socket")
