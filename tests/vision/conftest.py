"""Compiled kernels for the whole folder, cached between runs in the build directory."""

from pathlib import Path

import pytest

from smg.vision import jit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compiled():
    """The kernels' module; kept out of the way of tests that don't ask for it."""
    assert jit.warm(ROOT / "build")
    module = jit.kernels()
    jit._ready = None
    return module


@pytest.fixture(params=["kernels", "plain"])
def either(request, compiled, monkeypatch):
    """Run the test with the compiled kernels and without."""
    monkeypatch.setattr(jit, "_ready", compiled if request.param == "kernels" else None)
    return request.param


@pytest.fixture
def kernels(compiled, monkeypatch):
    """Run the test with the compiled kernels."""
    monkeypatch.setattr(jit, "_ready", compiled)
    return compiled
