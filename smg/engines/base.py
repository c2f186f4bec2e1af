"""What an engine contract provides: an Adapter (messages) that any transport can carry, and the facts it reports.

An Adapter turns nouns into message bytes and back and knows nothing of connections. ``GrpcDriver`` (``driver.py``)
joins one Adapter and one transport into a tokens backend. Adding a contract: one folder with an Adapter, one row in
``table.py``.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import ClassVar, Protocol

import msgspec

from smg._native.wire import Layout
from smg.core.backends import BackendKind, EngineRequest
from smg.core.batch import TokenBatch
from smg.core.media import MediaItem
from smg.engines.parcel import INLINE, Parcel
from smg.engines.transport.base import Tokens


class EngineInfo(msgspec.Struct):
    """What GetModelInfo and GetServerInfo told, normalised (spec engine-contract 2.8). Secrets never enter it.

    ``context_length`` and ``max_input_length`` (of a prompt) are in tokens, 0 when unknown. ``default_sampling`` holds
    temperature, top_p, top_k, min_p, repetition_penalty where the model has its own. ``labels`` are flat strings for
    people and policies. ``lacks`` are features of the contract that this engine has told it does not have. ``models``
    are the ids of all it serves, where that is more than ``model_id``.
    """

    model_id: str
    models: tuple[str, ...] = ()
    model_path: str = ""
    tokenizer_path: str = ""
    context_length: int = 0
    max_input_length: int = 0
    vocab_size: int = 0
    eos_ids: tuple[int, ...] = ()
    is_generation: bool = True
    default_sampling: dict[str, float] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    lacks: frozenset[str] = frozenset()


class EngineLoad(msgspec.Struct, frozen=True):
    """One rank's load (spec engine-contract 2.9).

    ``usage`` is the share of the KV cache in use, 0 to 1. ``queued_tokens`` are prompt tokens of waiting requests that
    the prefix cache does not have (0: none, or not told). ``throughput`` is in generated tokens per second;
    ``cache_hit_rate`` and ``utilization`` are shares; ``max_running`` is the engine's own limit on ``running``.
    """

    dp_rank: int = 0
    running: int = 0
    waiting: int = 0
    used_tokens: int = 0
    max_tokens: int = 0
    usage: float = 0.0
    queued_tokens: int = 0
    throughput: float = 0.0
    cache_hit_rate: float = 0.0
    utilization: float = 0.0
    max_running: int = 0


class Decoder(Protocol):
    """Turns one stream's messages into batches; it holds what a contract's quirks need to remember per choice.

    ``plain`` makes the batch of token chunks that a transport has read itself (``TokenTransport``), by ``layout``. It
    is None where every chunk has more than ids, as with log probabilities.
    """

    layout: ClassVar[Layout]

    @property
    def plain(self) -> Callable[[Tokens], TokenBatch] | None: ...

    def decode(self, message: bytes) -> list[TokenBatch]:
        """Decode one message. Raises ValueError when it is not one of this contract's."""
        ...


class EmbedResult(msgspec.Struct):
    """One embedding: the engine's own vector, neither cut nor normalised."""

    vector: list[float]
    prompt_tokens: int = 0


class Adapter(Protocol):
    """The messages of one engine contract.

    ``service`` is the full gRPC service name, ``encoder_service`` that of the feature ``encode``. ``capabilities`` are
    features of ``smg.engines.capabilities``; what belongs to one that is missing here is never called. ``health_secs``
    is how long the engine's own HealthCheck may take (some generate a token for it). ``media_dtype`` is the element
    type of media tensors (``core.media.Tensor``) unless an engine tells another; empty where no tensors are sent.
    ``shared_memory``: messages can name files of shared memory that have tensors.
    """

    name: str
    service: str
    encoder_service: str
    capabilities: frozenset[str]
    health_secs: float
    media_dtype: ClassVar[str]
    shared_memory: ClassVar[bool]

    def generate(self, request: EngineRequest, parcel: Parcel = INLINE) -> bytes:
        """Encode a Generate request, with what tensors ``parcel`` leaves for it.

        Raises GatewayError (400) for what the contract cannot express.
        """
        ...

    def decoder(self, request: EngineRequest) -> Decoder: ...

    def abort(self, ids: Sequence[str], reason: str) -> Sequence[bytes]:
        """Encode the Abort messages for these dispatch ids (one message, or one per id).

        ``reason`` is one of ``core.context.Cancel``; contracts that have a place for it log it.
        """
        ...

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        """Decode the answers of GetModelInfo and GetServerInfo. Raises ValueError when they are not that."""
        ...

    def healthy(self, message: bytes) -> bool:
        """Decode a HealthCheck answer; what is none is not healthy."""
        ...

    def tokenizer_chunk(self, message: bytes) -> tuple[bytes, str]:
        """Decode one GetTokenizer chunk into (data, sha256 hex; empty on all but the last). Raises ValueError."""
        ...

    def loads_request(self) -> bytes:
        """Encode a GetLoads request (feature ``loads``)."""
        ...

    def loads(self, message: bytes) -> list[EngineLoad]:
        """Decode GetLoads' answer, one record per data-parallel rank (feature ``loads``). Raises ValueError."""
        ...

    def embed(self, request_id: str, ids: Sequence[int]) -> bytes:
        """Encode an Embed request (feature ``embed``). Raises GatewayError (400)."""
        ...

    def embedding(self, message: bytes) -> EmbedResult:
        """Decode Embed's answer (feature ``embed``). Raises ValueError."""
        ...

    def encode(self, request_id: str, item: MediaItem, token_id: int, room: int, parcel: Parcel = INLINE) -> bytes:
        """Encode an Encode request of ``encoder_service`` (feature ``encode``). Raises GatewayError (501).

        ``token_id`` is that of ``MediaInputs``, ``parcel`` as for ``generate``.
        """
        ...

    def encoded(self, message: bytes) -> bool:
        """Decode Encode's answer: whether the item was accepted (feature ``encode``). Raises ValueError."""


class Driver(Protocol):
    """What control asks of an engine, whatever connects it. Each kind of backend has its own way to generate beside.

    ``runtime`` is the name of the engine's contract or kind of server; ``capabilities`` are features it offers.
    """

    url: str

    @property
    def kind(self) -> BackendKind: ...

    @property
    def runtime(self) -> str: ...

    @property
    def capabilities(self) -> frozenset[str]: ...

    async def info(self) -> EngineInfo:
        """Ask what the engine is and serves. Raises GatewayError."""
        ...

    async def health(self, timeout: float, *, thorough: bool = False) -> bool:
        """Tell whether it serves; ``thorough`` may make it work for that. Raises GatewayError: no answer."""
        ...

    async def loads(self) -> list[EngineLoad]:
        """The load of each rank; ask only where ``capabilities`` have ``loads``. Raises GatewayError."""
        ...

    def tokenizer_bundle(self) -> AsyncIterator[tuple[bytes, str]]:
        """Its tokenizer's files as (data, SHA-256 or empty); ask only where ``capabilities`` have it."""
        ...

    def retire(self) -> None:
        """Close as soon as nothing runs any more."""
        ...

    async def close(self) -> None:
        """Break off what runs and close all connections. Idempotent."""
        ...
