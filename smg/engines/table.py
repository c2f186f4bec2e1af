"""The engine contracts this gateway speaks: one row each."""

from collections.abc import Callable, Mapping

from smg.engines.base import Adapter
from smg.engines.vllm.adapter import VllmAdapter

ADAPTERS: Mapping[str, Callable[[], Adapter]] = {
    "vllm": VllmAdapter,
}


def adapter(name: str) -> Adapter:
    """Return a new adapter of the contract ``name``. Raises ValueError for one that is not in the table."""
    factory = ADAPTERS.get(name)
    if factory is None:
        raise ValueError(f"unknown engine contract {name!r}; known are: {', '.join(sorted(ADAPTERS))}")
    return factory()
