"""kill -9 of every part under load: the others go on, every client gets an answer or an error, the part comes back."""

import asyncio
import itertools
import os
import signal

import pytest

from tests.faults.every_dialect import KINDS, ask
from tests.gateway import MODEL, Gateway, running, settings, until_async

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENTS = len(KINDS)
# Seconds until something has gone wrong, however busy the machine is. How long it really takes is not what is tested.
PATIENCE = 30.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """One for all: each test ends with every part back."""
    state = tmp_path_factory.mktemp("state")
    with running(settings(state, "--embedded-engine", "--workers", "2")) as started:
        yield started


async def load_until(gateway: Gateway, stop: asyncio.Event, ends: list[str], first: int) -> None:
    """Ask in all dialects in turn, beginning with the ``first``, until ``stop``."""
    for dialect, stream in itertools.cycle(KINDS[first:] + KINDS[:first]):
        if stop.is_set():
            return
        ends.append((await ask(gateway.url, dialect, stream, model=MODEL, limit=12, timeout=2 * PATIENCE)).how)


@pytest.mark.parametrize("role", ["worker-1", "control", "engine"])
async def test_kill_9_under_load(gateway: Gateway, role: str):
    stop, ends = asyncio.Event(), []
    restarts = gateway.metric("smg_process_restarts_total")
    clients = [asyncio.create_task(load_until(gateway, stop, ends, first)) for first in range(CLIENTS)]
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
        end = await ask(gateway.url, *KINDS[number % len(KINDS)], model=MODEL, limit=12)
        assert end.how in ("answer", "reset")
        if number == 6:
            os.kill(gateway.child("worker-2"), signal.SIGKILL)
            await asyncio.sleep(1)
        for _ in range(3):
            seen.append(gateway.metric("smg_router_requests_total"))
    assert seen == sorted(seen)
    assert seen[-1] >= seen[0] + 10
