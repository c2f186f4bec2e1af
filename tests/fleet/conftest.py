"""A small region, and what engines tell."""

import pytest

from smg._native.region import Region
from smg.engines.base import EngineInfo


@pytest.fixture
def region():
    region = Region.create(3, workers=4, snapshot_bytes=1 << 16)
    yield region
    region.close()


@pytest.fixture
def told():
    def info(model="llama", **fields):
        return EngineInfo(model, **({"context_length": 4096, "eos_ids": (2,)} | fields))

    return info
