"""The engine contracts this gateway speaks: one row each, in the order in which probing asks."""

from collections.abc import Mapping

from smg.engines.base import Adapter
from smg.engines.mlx.adapter import MlxAdapter
from smg.engines.sglang.adapter import SglangAdapter
from smg.engines.tokenspeed.adapter import TokenSpeedAdapter
from smg.engines.trtllm.adapter import TrtllmAdapter
from smg.engines.vllm.adapter import VllmAdapter

ADAPTERS: Mapping[str, type[Adapter]] = {
    "vllm": VllmAdapter,
    "sglang": SglangAdapter,
    "trtllm": TrtllmAdapter,
    "tokenspeed": TokenSpeedAdapter,
    "mlx": MlxAdapter,
}


def adapter(name: str) -> Adapter:
    """Return a new adapter of the contract ``name``. Raises ValueError for one that is not in the table."""
    factory = ADAPTERS.get(name)
    if factory is None:
        raise ValueError(f"unknown engine contract {name!r}; known are: {', '.join(sorted(ADAPTERS))}")
    return factory()
