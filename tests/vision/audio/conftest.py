"""Audio with and without compiled kernels."""

import pytest

from smg.vision import jit


@pytest.fixture(params=["kernels", "plain"])
def both(request, compiled, monkeypatch):
    """Run the test with the compiled kernels and without."""
    from smg.vision.audio import kernels

    monkeypatch.setattr(jit, "_audio", kernels if request.param == "kernels" else None)
    return request.param
