"""FileSource: workers from a YAML or JSON file that is read again when it changes (``--discovery-file``)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from smg.fleet.resilience import ResilienceSpec
from smg.fleet.sources import (
    Attempts,
    HealthSpec,
    Interval,
    MinBytes,
    ModelCard,
    TensorPath,
    WorkerSpec,
    check,
    tensor_labels,
)

log = logging.getLogger("smg.fleet")


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One worker as the file spells it; a model may be its name alone."""

    url: str
    runtime: str = ""
    models: list[str | ModelCard] = msgspec.field(default_factory=list)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    priority: int = 50
    cost: float = 1.0
    health: HealthSpec = HealthSpec()
    resilience: ResilienceSpec = ResilienceSpec()
    max_connection_attempts: Attempts | None = None
    load_monitor_interval_secs: Interval | None = None
    multimodal_tensor_transport: TensorPath | None = None
    multimodal_shm_min_bytes: MinBytes | None = None
    api_key: str = ""

    def spec(self) -> WorkerSpec:
        cards = tuple(ModelCard(model) if isinstance(model, str) else model for model in self.models)
        return WorkerSpec(
            url=self.url,
            runtime=self.runtime,
            models=cards,
            labels=self.labels | tensor_labels(self.multimodal_tensor_transport, self.multimodal_shm_min_bytes),
            priority=self.priority,
            cost=self.cost,
            api_key=self.api_key,
            health=self.health,
            resilience=self.resilience,
            max_connection_attempts=self.max_connection_attempts,
            load_monitor_interval_secs=self.load_monitor_interval_secs,
        )


class FileSource:
    """Yields the file's list whenever it has changed. A file that cannot be read leaves the last list in force."""

    name = "file"

    def __init__(self, path: str, interval: float) -> None:
        self._path = Path(path)
        self._interval = interval

    async def watch(self) -> AsyncIterator[Sequence[WorkerSpec]]:
        seen: bytes | None = None
        problem = ""
        while True:
            try:
                content = await asyncio.to_thread(self._path.read_bytes)
                if content != seen:
                    # Thousands of entries take a while.
                    yield await asyncio.to_thread(read, content)
                    seen, problem = content, ""
            except (OSError, ValueError) as error:
                if problem != str(error):
                    problem = str(error)
                    log.error("workers cannot be read", extra={"file": str(self._path), "error": problem})
            await asyncio.sleep(self._interval)


def read(content: bytes) -> list[WorkerSpec]:
    """The workers that ``content`` lists.

    Raises:
        ValueError: it is no such list; the message names the entry.
    """
    try:
        tree = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"neither YAML nor JSON: {error}") from None
    entries = tree.get("workers") if isinstance(tree, dict) else None
    if not isinstance(entries, list):
        raise ValueError("expected a mapping with a list 'workers'")
    specs = [_entry(number, entry) for number, entry in enumerate(entries)]
    seen: set[str] = set()
    for spec in specs:
        if spec.url in seen:
            raise ValueError(f"{spec.url!r} is listed twice")
        seen.add(spec.url)
    return specs


def _entry(number: int, entry: Any) -> WorkerSpec:
    try:
        raw = {"url": entry} if isinstance(entry, str) else entry
        spec = msgspec.convert(raw, _Entry).spec()
        check(spec)
    except ValueError as error:
        raise ValueError(f"workers[{number}]: {error}") from None
    return spec
