"""The Router interface: reserve on select, one lease per attempt (spec routing 10.3)."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from smg.core.request import Hints
from smg.fleet.breaker import Outcome
from smg.fleet.records import WorkerRecord


class Query(msgspec.Struct, frozen=True):
    """What a policy may look at. ``tried`` holds ids of workers that failed this request already.

    ``needs`` are features a worker must have, ``wishes`` those it may lack without making the answer wrong (see
    ``routing.needs``).
    """

    model: str
    ids: Sequence[int] = ()
    text: str = ""
    hints: Hints = Hints()
    leg: str = "regular"  # regular, prefill, decode, encode
    tried: frozenset[str] = frozenset()
    tokens: int = 0  # expected work, for load accounting
    needs: frozenset[str] = frozenset()
    wishes: frozenset[str] = frozenset()
    adapter: str = ""  # LoRA adapter: its KV blocks are not those of the base model
    media: tuple[str, ...] = ()  # digests of the media items, in prompt order


class Lesson(Protocol):
    """What a policy learns from a request: assumed when it is sent, then confirmed or withdrawn, once."""

    def assume(self) -> None: ...

    def confirm(self) -> None: ...

    def withdraw(self) -> None: ...


class Lease(msgspec.Struct):
    """A selected worker whose in-flight count is already raised.

    ``tokens`` are the prompt tokens it has still to compute, ``matched`` those it is expected to hold. ``lesson`` is
    what the policy can learn from the request, None once that is settled; ``lacks`` are the query's wishes that this
    worker cannot fulfil. ``rank`` is the data-parallel rank to ask for (None: the engine's choice), ``slot`` where the
    request is counted besides the worker itself. ``policy`` chose, ``prompt`` is the length of the query's prompt in
    tokens. ``permit`` is what its circuit breaker gave. ``prefill`` is the lease of the worker that computes the
    prompt, when another one than this does; ``encode`` are those of the workers that make embeddings of the query's
    media items for it, one for each item, or none.
    """

    worker: WorkerRecord
    reason: str
    tokens: int
    matched: int = 0
    lacks: frozenset[str] = frozenset()
    permit: int = 0
    done: bool = False
    prefill: "Lease | None" = None
    encode: list["Lease"] = []
    lesson: Lesson | None = None
    rank: int | None = None
    slot: int | None = None
    policy: str = ""
    prompt: int = 0


class Router(Protocol):
    """Selection and load accounting."""

    def select(self, query: Query) -> Lease:
        """Choose a worker, or a pair of them, and count the request there in one step.

        A query for the leg ``regular`` may be answered by a pair: the lease is then the decode worker's.

        Raises:
            GatewayError: ``model_not_found`` (404), ``unsupported_parameter`` (400) when no worker of the model can do
                what the query needs, ``runtime_pd_not_supported`` (400), or ``no_available_workers`` (503).
        """
        ...

    def available(self, query: Query) -> bool:
        """Tell whether ``select`` would find a worker (a retry asks before it waits)."""
        ...

    def patience(self, query: Query) -> float | None:
        """Seconds until ``select`` may find one of the workers that only their circuit breakers hold back, or None."""
        ...

    def count(self, query: Query) -> int:
        """How many workers ``select`` would choose from now. Raises GatewayError for an unknown model."""
        ...

    def commit(self, lease: Lease) -> None:
        """The worker has accepted the request (first batch): prefixes may be learnt, of a pair on both."""
        ...

    def release(self, lease: Lease, outcome: Outcome) -> None:
        """The attempt is over. Idempotent.

        Of a pair ``outcome`` is the decode worker's; a prefill worker that is still held has done its work if that is
        ``ok``, else it is let go. Encode workers that are still held are let go.
        """
        ...
