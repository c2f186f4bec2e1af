"""Two real vLLM engines with one model, for all tests of this folder (scripts/test --real-vllm)."""

import os
from pathlib import Path

import pytest

from smg.engine_server.llama.engine import default_model
from tests.gateway import Gateway
from tests.real_vllm.engines import vllm
from tests.real_vllm.model import write_model

# Over 600 tokens.
LONG = " ".join(f"Fact {number}: the sea is wide and old." for number in range(60))


@pytest.fixture(scope="session")
def engines():
    folder = Path(os.environ["SMG_REAL_VLLM"])
    model = write_model(default_model(), folder / "smol")
    with vllm(folder, model, "first") as first, vllm(folder, model, "second") as second:
        yield first, second


def name_of(gateway: Gateway) -> str:
    """The one model's id."""
    return str(gateway.get("/v1/models").json()["data"][0]["id"])
