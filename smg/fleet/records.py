"""Records of the fleet, as control publishes them and request workers read them."""

from typing import Any, Literal, TypeAlias

import msgspec

from smg.core.backends import BackendKind
from smg.fleet.resilience import ResilienceSpec
from smg.fleet.sources import WorkerSpec

Status: TypeAlias = Literal["pending", "ready", "not_ready", "failed", "draining"]

Role: TypeAlias = Literal["regular", "prefill", "decode", "encode"]

JobStatus: TypeAlias = Literal["pending", "processing", "completed", "failed"]

# Numbers of a status in the region's worker table (0 is a free slot).
STATUS_CODES: dict[Status, int] = {"pending": 1, "ready": 2, "not_ready": 3, "failed": 4, "draining": 5}
# The model of workers that serve whatever they are asked for (spec routing 4.1, 4.2).
WILDCARD = "unknown"

STATUS_NAMES: dict[int, Status] = {code: name for name, code in STATUS_CODES.items()}


class RankRecord(msgspec.Struct, frozen=True):
    """One data-parallel rank of a worker: the engine's global number, and the slot of its own it is counted in."""

    number: int
    slot: int


class WorkerRecord(msgspec.Struct, omit_defaults=True):
    """One engine. ``slot`` indexes the region's worker table and stays the same for the worker's life.

    ``runtime`` is the driver's name (a row of ``smg.engines.table``), empty until probed. ``status`` here is the last
    published one; the region's table has the current one. ``models`` are the ids it serves, the first its own.
    ``features`` are what it can do (``smg.engines.capabilities``), None until it has told. ``role`` is the part of a
    generation it takes, as ``labels`` tell (``smg.fleet.roles``).

    ``origin`` is the name of the source that wants it, ``spec`` what that says, and ``patch`` the fields of it that the
    admin API has changed since; ``labels``, ``priority`` and ``cost`` are what comes of it all.
    ``api_key`` is what an HTTP engine wants to see; it is never shown. ``resilience`` is what its retries and circuit
    breaker do otherwise than the settings say, None for nothing.

    ``ranks`` are the data-parallel ranks that requests are routed to one by one; empty for a worker that is routed to
    as a whole.
    """

    id: str
    slot: int
    url: str
    runtime: str = ""
    role: Role = "regular"
    kind: BackendKind = "tokens"
    models: list[str] = msgspec.field(default_factory=list)
    status: Status = "pending"
    reason: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    features: frozenset[str] | None = None
    priority: int = 50
    cost: float = 1.0
    origin: str = ""
    spec: WorkerSpec | None = None
    patch: dict[str, Any] = msgspec.field(default_factory=dict)
    api_key: str = ""
    resilience: ResilienceSpec | None = None
    ranks: list[RankRecord] = msgspec.field(default_factory=list)

    @property
    def wanted(self) -> WorkerSpec:
        """The worker as it is wanted now."""
        spec = self.spec if self.spec is not None else WorkerSpec(self.url)
        return msgspec.convert({**msgspec.to_builtins(spec), **self.patch}, WorkerSpec) if self.patch else spec

    @property
    def held(self) -> str:
        """Why its source wants no requests on it for now, empty if it does."""
        return self.spec.held if self.spec is not None else ""

    @property
    def slots(self) -> list[int]:
        """All slots the worker has in the region, its own first."""
        return [self.slot, *(rank.slot for rank in self.ranks)]


class ModelRecord(msgspec.Struct):
    """One model id and what the gateway needs to serve it.

    ``tokenizer_dir`` is a local directory (bundle cache or configured path), empty until it is there; ``tokenizer_key``
    names its content, so that workers load each content once. ``chat_template`` is a file that came with an added
    tokenizer. ``context_length``, ``max_input_length`` (of a prompt,
    both in tokens) and ``vocab_size`` are 0 when unknown. ``generates`` is False for a model that only embeds.
    ``policy`` is the routing policy control was told for it, with its parameters if any, empty for none.
    """

    id: str
    aliases: list[str] = msgspec.field(default_factory=list)
    tokenizer_dir: str = ""
    tokenizer_key: str = ""
    tokenizer_error: str = ""
    chat_template: str = ""
    context_length: int = 0
    max_input_length: int = 0
    vocab_size: int = 0
    generates: bool = True
    eos_ids: list[int] = msgspec.field(default_factory=list)
    default_sampling: dict[str, float] = msgspec.field(default_factory=dict)
    created: int = 0
    policy: str = ""


class TokenizerRecord(msgspec.Struct):
    """A tokenizer that an admin added under ``name``. ``source`` and ``chat_template`` (a file) are as given.

    ``directory``, ``key`` and ``vocab_size`` are known once ``status`` is ``completed``; ``error`` when it is
    ``failed``. ``created`` is when it was added, or failed (Unix seconds).
    """

    id: str
    name: str
    source: str
    chat_template: str = ""
    status: JobStatus = "pending"
    error: str = ""
    directory: str = ""
    key: str = ""
    vocab_size: int = 0
    created: int = 0

    def as_model(self) -> ModelRecord:
        """What a model that only has this tokenizer would be."""
        return ModelRecord(
            self.name,
            tokenizer_dir=self.directory,
            tokenizer_key=self.key,
            tokenizer_error=self.error,
            chat_template=self.chat_template,
        )


class FleetSnapshot(msgspec.Struct):
    """The registry at one moment; published as msgpack in the region.

    ``refused`` are URLs that an admin has removed while a source still wants them. ``shape`` is the version since which
    workers and models have been the same but for the statuses, as far as the reader knows; 0 if nobody has looked.
    """

    version: int = 0
    workers: list[WorkerRecord] = msgspec.field(default_factory=list)
    models: list[ModelRecord] = msgspec.field(default_factory=list)
    refused: list[str] = msgspec.field(default_factory=list)
    tokenizers: list[TokenizerRecord] = msgspec.field(default_factory=list)
    shape: int = 0

    def alike(self, other: "FleetSnapshot | None") -> bool:
        """Whether ``other`` is known to have the same workers and models, whatever their statuses."""
        return other is not None and self.shape == other.shape != 0

    def tokenizer(self, name: str) -> TokenizerRecord | None:
        """Find a loaded tokenizer that was added, by its name or else its id."""
        loaded = [record for record in self.tokenizers if record.status == "completed"]
        by_name = (record for record in loaded if record.name == name)
        return next(by_name, next((record for record in loaded if record.id == name), None))

    def model(self, name: str) -> ModelRecord | None:
        """Find a model by id or alias."""
        for record in self.models:
            if record.id == name or name in record.aliases:
                return record
        return None
