"""The three kinds of backend, and what is handed to each (DESIGN, the way of a request).

* ``tokens``: token ids in, TokenBatch out (gRPC and ZMQ engines). Text stages run in the gateway.
* ``events``: GenerationRequest in, Event out (providers, an HTTP engine asked in another dialect).
* ``raw``: the same dialect on both sides: the body is patched, the bytes return untouched.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypeGuard, runtime_checkable

import msgspec

from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.events import Event
from smg.core.media import MediaInputs
from smg.core.request import Constraint, GenerationRequest, Limits, Logprobs, Sampling
from smg.core.stream import StreamTable

BackendKind: TypeAlias = Literal["tokens", "events", "raw"]

# The body of a request that is passed on: as it came, or the pieces it is made of.
RawPayload: TypeAlias = bytes | Sequence[bytes | memoryview]


class Bootstrap(msgspec.Struct, frozen=True):
    """Where two engines meet for one transfer: the sender's ``host`` and ``port``, and the ``room`` both name."""

    host: str
    port: int
    room: int


class Leg(msgspec.Struct, frozen=True):
    """What one engine of a prefill/decode pair is told of the other (spec engine-contract 5).

    ``bootstrap`` is the meeting point of contracts whose engines find each other by it. ``kv_params`` is the JSON text
    of contracts that relay what the prefill engine returned, and ``kv_address`` the older host and port in its place.
    ``encoders`` are where the prefill engine gets each media item's embeddings from, in the items' order.
    ``described``: a decode engine that relays gets no pixels, only what tells the request's media from others.
    """

    role: Literal["prefill", "decode"]
    bootstrap: Bootstrap | None = None
    kv_params: bytes | None = None
    kv_address: tuple[str, int] | None = None
    encoders: tuple[Bootstrap, ...] = ()
    described: bool = False


class EngineRequest(msgspec.Struct):
    """One dispatch on a ``tokens`` backend, everything resolved.

    ``id`` is unique per attempt. ``sampling`` has the model's defaults filled in where the client said nothing.
    ``stop_ids`` end a choice inside the engine; stop strings are never sent (the gateway matches text itself).
    ``dp_rank`` is None unless the worker is pinned to a data-parallel rank (0 is a valid pin). ``lora`` names a LoRA
    adapter as the engine knows it. ``require_reasoning`` says that the model is to think before it answers (and before
    a constraint applies). ``from_first_token``: the constraint has room for reasoning itself and applies at once,
    whatever the engine would do otherwise. ``vocab_size`` is the engine's, 0 when unknown. ``leg`` is set for one
    engine of a pair. ``media`` belongs to placeholders of ``ids``.
    """

    id: str
    ids: Sequence[int]
    sampling: Sampling
    limits: Limits
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: Logprobs | None = None
    constraint: Constraint | None = None
    dp_rank: int | None = None
    lora: str | None = None
    require_reasoning: bool = False
    from_first_token: bool = False
    vocab_size: int = 0
    trace: str | None = None
    leg: Leg | None = None
    media: MediaInputs | None = None


@runtime_checkable
class Source(Protocol):
    """A running generation on an engine, as batches of TokenBatch.

    Flow control is by demand: nothing is read from the engine while nobody awaits ``next`` (a slow client therefore
    pauses only its own stream).
    """

    async def next(self) -> list[TokenBatch]:
        """Return everything that has arrived (at least one batch), or [] at the clean end.

        What is clean is the contract's to say (field case OA-02). One that closes each choice with a message of its own
        (all gRPC contracts: Complete, whose reason may be missing) has broken off when its stream ends without them,
        whatever the status. One that has no such message ends with the stream: choices that were not closed by then
        stopped by themselves.

        Raises:
            GatewayError: ``worker_stream_failed`` and kin; ``worker_fault`` tells whether the engine is to blame.
        """
        ...

    async def cancel(self, reason: str) -> None:
        """Stop the generation on the engine (transport cancel, then Abort). Idempotent, never raises."""
        ...


class RowSource(Source, Protocol):
    """A Source that may feed rows by itself, without Python per token (DESIGN 6, the pump).

    Who is one derives from it, so that a type checker misses what it lacks: ``feeds_rows`` asks for one method only.
    """

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """Feed the choices' further ids to ``rows`` of ``table`` while ``next`` is awaited; False: it can't.

        Rows are fed as by ``table.feed``. ``next`` then returns when there is something to decide, or something in the
        rows' sink to send; its batches have no ids that were fed.
        """
        ...

    def unsaid(self) -> list[TokenBatch]:
        """What the engine told with ids that were fed, but no ``next`` has returned because it was broken off.

        Batches without ids, each told once.
        """
        ...


def feeds_rows(source: Source) -> TypeGuard[RowSource]:
    """Whether ``source`` is a RowSource."""
    # isinstance with a protocol compares all its members by name, each time anew.
    return hasattr(source, "feed_rows")


class TokensBackend(Protocol):
    """An engine that takes and returns token ids."""

    kind: Literal["tokens"]

    async def open(self, ctx: RequestContext, request: EngineRequest) -> Source:
        """Dispatch ``request``. Raises GatewayError when it can't even be sent."""
        ...


class EventsBackend(Protocol):
    """A provider: canonical request in, events out."""

    kind: Literal["events"]

    def generate(self, ctx: RequestContext, request: GenerationRequest) -> AsyncIterator[list[Event]]: ...


class RawBody(Protocol):
    """The body of a forwarded answer. Nothing is read from the upstream while nobody awaits ``read``."""

    async def read(self) -> bytes:
        """Return what has arrived, b"" at the end. Raises GatewayError when the upstream breaks off."""
        ...

    def close(self) -> None:
        """Let the upstream know that nobody reads on. Idempotent; not needed after the end."""
        ...


class RawResponse(msgspec.Struct):
    """Head of a forwarded answer (names of headers in lower case) and its body, as the upstream sent them."""

    status: int
    headers: list[tuple[str, str]]
    body: RawBody

    def header(self, name: str) -> str:
        """A header's value, empty when it is not there."""
        return next((value for found, value in self.headers if found == name), "")


class RawBackend(Protocol):
    """An upstream that speaks the client's own dialect."""

    kind: Literal["raw"]

    async def forward(
        self, ctx: RequestContext, method: str, path: str, headers: Mapping[str, str], body: RawPayload
    ) -> RawResponse: ...


Backend: TypeAlias = TokensBackend | EventsBackend | RawBackend
