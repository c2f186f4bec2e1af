"""Where workers come from. Flags today; any discovery (Kubernetes, a file, the admin API) yields the same specs."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from smg.engines.table import adapter
from smg.engines.transport.address import parse


class WorkerSpec(msgspec.Struct, frozen=True):
    """One wanted worker. ``runtime`` empty: its contract is probed. ``labels`` win over what the engine tells."""

    url: str
    runtime: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 50
    cost: float = 1.0


class WorkerSource(Protocol):
    """A place that knows which workers there should be."""

    def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        """Yield this source's whole list, again after every change; an ended iterator means: it stays as it is."""
        ...


class StaticSource:
    """The workers given by flags, for the life of the process.

    Raises:
        ValueError: one of ``urls`` is no engine address, or ``runtime`` no known contract.
    """

    def __init__(self, urls: Sequence[str], runtime: str | None = None) -> None:
        if runtime:
            adapter(runtime)
        for url in urls:
            parse(url)
        self._specs = [WorkerSpec(url=url, runtime=runtime or "") for url in dict.fromkeys(urls)]

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        yield self._specs
