"""kill -9 of every part under load: the others go on, every client gets an answer or an error, the part comes back."""

import asyncio
import json
import os
import signal

import httpx
import pytest

from tests.gateway import Gateway, body, running, settings, until_async

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENTS = 8
# Seconds until something has gone wrong, however busy the machine is. How long it really takes is not what is tested.
PATIENCE = 30.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """One for all: each test ends with every part back."""
    state = tmp_path_factory.mktemp("state")
    with running(settings(state, "--embedded-engine", "--workers", "2")) as started:
        yield started


async def ask(gateway: Gateway, stream: bool) -> str:
    """Send one request on a connection of its own and say how it ended.

    ``answer``, ``error`` (in the dialect's shape, before or inside the stream) or ``reset`` (the connection broke
    visibly: no status line, or a body without its last chunk). Anything else fails.
    """
    url = gateway.url + "/v1/chat/completions"
    async with httpx.AsyncClient(timeout=2 * PATIENCE) as client:
        try:
            if not stream:
                response = await client.post(url, content=body(max_tokens=24))
                value = response.json()
                if response.status_code == 200:
                    assert value["choices"][0]["finish_reason"] in ("stop", "length")
                    return "answer"
                assert set(value["error"]) == {"message", "type", "param", "code"}, value
                return "error"
            async with client.stream("POST", url, content=body(stream=True, max_tokens=24)) as response:
                lines = [
                    line.removeprefix("data: ") async for line in response.aiter_lines() if line.startswith("data: ")
                ]
                if response.status_code != 200:
                    return "error"
                if lines[-1] == "[DONE]":
                    assert any('"finish_reason":"' in line for line in lines)
                    return "answer"
                last = json.loads(lines[-1])
                assert set(last["error"]) == {"message", "type", "param", "code"}, last
                return "error"
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.ConnectError):
            return "reset"


async def load_until(gateway: Gateway, stop: asyncio.Event, ends: list[str]) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        ends.append(await ask(gateway, stream=number % 2 == 0))


@pytest.mark.parametrize("role", ["worker-1", "control", "engine"])
async def test_kill_9_under_load(gateway: Gateway, role: str):
    stop, ends = asyncio.Event(), []
    restarts = gateway.metric("smg_process_restarts_total")
    clients = [asyncio.create_task(load_until(gateway, stop, ends)) for _ in range(CLIENTS)]
    await until_async(lambda: ends.count("answer") >= CLIENTS, PATIENCE)
    before = len(ends)
    victim = gateway.child(role)
    os.kill(victim, signal.SIGKILL)

    def back() -> bool:
        try:
            return gateway.child(role) != victim and gateway.ready()
        except LookupError:
            return False

    await until_async(back, PATIENCE)
    again = len(ends)
    # More than were on their way: some began when everything was back.
    await until_async(lambda: ends[again:].count("answer") > CLIENTS, PATIENCE)
    stop.set()
    # A client that hung would have raised its own timeout.
    await asyncio.gather(*clients)
    after = ends[before:]
    if role == "control":
        assert set(after) == {"answer"}, "requests do not notice the death of control"
    if role == "worker-1":
        assert "error" not in after
        assert after.count("reset") <= CLIENTS, "only the dead worker's own connections broke"
    if role == "engine":
        assert "reset" not in after, "an engine's death never cuts a client's connection"
    await until_async(
        lambda: gateway.metric("smg_requests_inflight") == gateway.metric("smg_worker_requests_active") == 0, PATIENCE
    )
    assert gateway.metric("smg_process_restarts_total") == restarts + 1


async def test_counters_never_decrease_over_a_kill(gateway: Gateway):
    seen = [gateway.metric("smg_router_requests_total")]
    for number in range(12):
        assert await ask(gateway, stream=bool(number % 2)) in ("answer", "reset")
        if number == 6:
            os.kill(gateway.child("worker-2"), signal.SIGKILL)
            await asyncio.sleep(1)
        for _ in range(3):
            seen.append(gateway.metric("smg_router_requests_total"))
    assert seen == sorted(seen)
    assert seen[-1] >= seen[0] + 10
