"""Where workers come from: flags, a file, the admin API. Any other discovery yields the same specs."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from smg.engines.table import adapter
from smg.engines.transport.address import parse


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that a worker serves, and other names it answers to."""

    id: str
    aliases: tuple[str, ...] = ()


class HealthSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one worker is probed; None is what the settings say. Times are in seconds."""

    check_interval_secs: Annotated[float, Meta(gt=0)] | None = None
    timeout_secs: Annotated[float, Meta(gt=0)] | None = None
    failure_threshold: Annotated[int, Meta(ge=1)] | None = None
    success_threshold: Annotated[int, Meta(ge=1)] | None = None


class WorkerSpec(msgspec.Struct, frozen=True):
    """One wanted worker. ``runtime`` empty: its contract is probed. ``labels`` win over what the engine tells.

    ``models`` empty: the engine tells its model. Workers of the highest ``priority`` come first, and of these the ones
    with the lowest ``cost``; the others are for when those are away or full (spec routing 4.1).
    """

    url: str
    runtime: str = ""
    models: tuple[ModelCard, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 50
    cost: float = 1.0
    health: HealthSpec = HealthSpec()


def check(spec: WorkerSpec) -> None:
    """Raise ValueError when ``spec`` cannot be a worker: no engine address, or no known contract."""
    parse(spec.url)
    if spec.runtime:
        adapter(spec.runtime)


class WorkerSource(Protocol):
    """A place that knows which workers there should be; ``name`` is what it is called where workers are listed."""

    name: str

    def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        """Yield this source's whole list, again after every change; an ended iterator means: it stays as it is."""
        ...


class StaticSource:
    """The workers given by flags, for the life of the process.

    Raises:
        ValueError: one of ``urls`` is no engine address, or ``runtime`` no known contract.
    """

    name = "flags"

    def __init__(self, urls: Sequence[str], runtime: str | None = None) -> None:
        self._specs = [WorkerSpec(url=url, runtime=runtime or "") for url in dict.fromkeys(urls)]
        for spec in self._specs:
            check(spec)

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        yield self._specs


class ApiSource:
    """The workers that the admin API has added, by URL; ``specs`` are those of an earlier control process."""

    name = "api"

    def __init__(self, specs: Iterable[WorkerSpec] = ()) -> None:
        self._specs = {spec.url: spec for spec in specs}
        self._changed = asyncio.Event()

    @property
    def specs(self) -> list[WorkerSpec]:
        return list(self._specs.values())

    def put(self, spec: WorkerSpec) -> None:
        """Want ``spec``, instead of what was wanted at its URL."""
        self._specs[spec.url] = spec
        self._changed.set()

    def drop(self, url: str) -> None:
        """Want nothing at ``url`` any more."""
        self._specs.pop(url, None)
        self._changed.set()

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        while True:
            self._changed.clear()
            yield self.specs
            await self._changed.wait()
