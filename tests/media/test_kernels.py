"""Items wait for kernels that are being compiled, but not for ever."""

import asyncio
import threading

import pytest

from smg.core.request import MediaPart
from smg.vision import jit, service
from tests.media.models import QWEN, png
from tests.media.test_contracts import World


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """A model in a process whose kernels are compiled when ``world.go`` is set."""
    go = threading.Event()
    monkeypatch.setattr(jit, "warm", lambda _: go.wait(10))
    monkeypatch.setattr(jit, "_ready", None)
    made = World(QWEN, tmp_path)
    made.go = go
    yield made
    go.set()
    await made.vision.close()


def ask(world):
    return asyncio.create_task(world.ask("float32", MediaPart("image", data=png(64, 64))))


async def test_the_first_items_wait_until_they_are_compiled(world):
    waiting = ask(world)
    # Without the wait an image this small is done in a few milliseconds.
    await asyncio.sleep(0.3)
    assert not waiting.done()
    world.go.set()
    async with asyncio.timeout(5):
        anchored, request = await waiting
    assert len(request.ids) > len(anchored)


async def test_when_that_takes_too_long_slower_code_serves_and_the_log_says_so(world, monkeypatch, caplog):
    monkeypatch.setattr(service, "KERNEL_WAIT_SECS", 0.01)
    async with asyncio.timeout(5):
        anchored, request = await ask(world)
    assert len(request.ids) > len(anchored)
    assert "slower code serves" in caplog.text
