"""Media kernels, compiled by a process of its own as soon as an engine takes media."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from smg.control.prepared_kernels import PreparedKernels
from smg.vision import jit
from tests.gateway import children
from tests.gateway import until_async as until

SEES = SimpleNamespace(features=frozenset({"generate", "image"}))
BLIND = SimpleNamespace(features=frozenset({"generate"}))
SILENT = SimpleNamespace(features=None)


@pytest.fixture
async def kernels(tmp_path, monkeypatch):
    """Of an installation that has none."""
    monkeypatch.setattr(jit, "cached", lambda _: False)
    made = PreparedKernels(str(tmp_path))
    yield made
    await made.close()


def compilers() -> list[int]:
    return [pid for pid in children(os.getpid()) if b"smg.vision" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def test_they_are_compiled_once_an_engine_takes_media(kernels):
    kernels.look([BLIND, SILENT])
    await asyncio.sleep(0.05)
    assert not compilers()
    kernels.look([BLIND, SEES])
    kernels.look([SEES])
    await until(lambda: len(compilers()) == 1)
    await kernels.close()
    assert not compilers(), "control has gone, and with it what it had begun"


async def test_nothing_is_begun_where_they_are_there(kernels, monkeypatch):
    asked = []
    monkeypatch.setattr(jit, "cached", lambda folder: asked.append(folder) or True)
    kernels.look([SEES])
    await until(lambda: asked)
    await asyncio.sleep(0.05)
    assert not compilers()
