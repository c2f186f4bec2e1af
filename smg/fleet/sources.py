"""Where workers come from: flags, a file, the admin API, pods of Kubernetes. All of them yield the same specs."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Annotated, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Meta

from smg.engines.finding import scheme_of
from smg.engines.http.address import split_rank
from smg.engines.parcel import SHM_MIN_BYTES, TRANSPORT
from smg.engines.table import adapter
from smg.fleet.resilience import ResilienceSpec

Attempts: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Interval: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
TensorPath: TypeAlias = Literal["inline", "shm", "auto"]
MinBytes: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 40)]


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model that a worker serves, and other names it answers to."""

    id: str
    aliases: tuple[str, ...] = ()


class HealthSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How one worker is probed; None is what the settings say. Times are in seconds.

    With ``disable_health_check`` an engine is asked who it is, and not how it is.
    """

    check_interval_secs: Annotated[float, Meta(gt=0)] | None = None
    timeout_secs: Annotated[float, Meta(gt=0)] | None = None
    failure_threshold: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    success_threshold: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    disable_health_check: bool | None = None


class WorkerSpec(msgspec.Struct, frozen=True):
    """One wanted worker. ``runtime`` empty: its contract is probed. ``labels`` win over what the engine tells.

    ``models`` empty: the engine tells its model. Workers of the highest ``priority`` come first, and of these the ones
    with the lowest ``cost``; the others are for when those are away or full (spec routing 4.1).
    ``api_key`` is for HTTP engines. ``held``, if not empty, is why the worker gets no requests for now, although it
    belongs to the fleet. After ``max_connection_attempts`` probes in vain a worker that has never answered has failed,
    however long its start may take; ``load_monitor_interval_secs`` is the time between looks at its load.
    """

    url: str
    runtime: str = ""
    models: tuple[ModelCard, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 50
    cost: float = 1.0
    health: HealthSpec = HealthSpec()
    resilience: ResilienceSpec = ResilienceSpec()
    max_connection_attempts: Attempts | None = None
    load_monitor_interval_secs: Interval | None = None
    api_key: str = ""
    held: str = ""


def check(spec: WorkerSpec) -> None:
    """Raise ValueError when ``spec`` cannot be a worker: no engine address, or no known contract."""
    scheme_of(spec.url)
    if spec.runtime:
        adapter(spec.runtime)


def tensor_labels(path: TensorPath | None, least: int | None) -> dict[str, str]:
    """Labels that say how a worker's engine gets tensors, where ``path`` and ``least`` (bytes) do."""
    given = {TRANSPORT: path, SHM_MIN_BYTES: least}
    return {label: str(value) for label, value in given.items() if value is not None}


class WorkerSource(Protocol):
    """A place that knows which workers there should be; ``name`` is what it is called where workers are listed."""

    name: str

    def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        """Yield this source's whole list, again after every change; an ended iterator means: it stays as it is."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A source that knows why a worker is no longer in its list."""

    def departure(self, url: str) -> str:
        """One word of few, for logs and metrics; asked when the list that ``url`` is missing from has been yielded."""
        ...


class StaticSource:
    """The workers given by flags, for the life of the process.

    Raises:
        ValueError: one of ``urls`` is no engine address, ``runtime`` no known contract, or a key is for none of them.
    """

    name = "flags"

    def __init__(self, urls: Sequence[str], runtime: str | None = None, keys: Sequence[str] = ()) -> None:
        by_url = _keys(keys, urls)
        self._specs = [
            WorkerSpec(url=url, runtime=runtime or "", api_key=by_url.get(split_rank(url)[0], by_url.get("", "")))
            for url in dict.fromkeys(urls)
        ]
        for spec in self._specs:
            check(spec)

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        yield self._specs


class EmbeddedSource(StaticSource):
    """The engine that the gateway has started itself; that it does not answer at first is no news."""

    name = "embedded"


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


def _keys(keys: Sequence[str], urls: Sequence[str]) -> dict[str, str]:
    """Keys by the URL they are for, under "" the one for all others: ``KEY`` or ``URL=KEY``."""
    known = {split_rank(url)[0] for url in urls}
    found: dict[str, str] = {}
    for text in keys:
        url = next((url for url in known if text.startswith(f"{url}=")), "")
        if not url and "://" in text:
            raise ValueError("a worker API key is for a URL that no worker has")
        found[url] = text.removeprefix(f"{url}=") if url else text
    return found
