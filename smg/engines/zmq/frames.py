"""What engines over ZeroMQ have in common: frames, ids of choices, aborts (spec engine-contract 6).

A message to an engine is ``[type, payload, …]``. A ``Wire`` is what differs: how a request is written, and how a step's
outputs are read.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch
from smg.core.errors import GatewayError
from smg.engines.base import EngineLoad

ADD, ABORT = b"\x00", b"\x01"
DEAD = b"ENGINE_CORE_DEAD"

_encoder = msgspec.msgpack.Encoder()
# The payload of an ABORT that aborts nothing.
NOBODY = _encoder.encode([])


class UtilityOutput(msgspec.Struct, array_like=True):
    """The answer to a utility call."""

    call_id: int
    failure_message: str | None = None
    result: Any = None


class Step(msgspec.Struct):
    """One message of an engine: ``outputs`` are request ids and what belongs to them, for ``Wire.batch``."""

    outputs: list[tuple[str, Any]]
    load: EngineLoad | None = None
    utility: UtilityOutput | None = None


class Told(msgspec.Struct, frozen=True):
    """What a request depends on of what its engine has told: its context in tokens (0 when unknown), and the type of
    floats it computes in (empty when unknown)."""

    longest: int = 0
    dtype: str = ""


class Wire(Protocol):
    """One engine's messages. ``runtime`` is the contract's name, ``capabilities`` what it offers over ZeroMQ."""

    runtime: ClassVar[str]
    capabilities: ClassVar[frozenset[str]]

    def add(self, request: EngineRequest, choice: int, client: int, told: Told) -> list[Any]:
        """The frames of an ADD, from its payload on: choice ``choice`` of ``request``, from process ``client`` of the
        gateway. Frames behind the payload are tensors. Raises GatewayError (400).
        """
        ...

    def step(self, frames: Sequence[bytes]) -> Step:
        """Read one message. Raises ValueError when it is none."""
        ...

    def tokens(self, output: Any) -> tuple[list[int], int, int] | None:
        """Ids, prompt and cached tokens (0: not told) of an output that has nothing else; None: see ``batch``."""
        ...

    def batch(self, output: Any, choice: int, request: EngineRequest, frames: Sequence[bytes]) -> TokenBatch:
        """One output as a batch. Raises ValueError when it is none."""
        ...


def abort(request: EngineRequest, choices: Sequence[int]) -> bytes:
    """The payload of an ABORT of these choices."""
    return _encoder.encode([child(request, choice) for choice in choices])


def child(request: EngineRequest, choice: int) -> str:
    """The id of one choice on the engine; the engine core knows no n."""
    return request.id if request.n == 1 else f"{request.id}-{choice}"


def check(request: EngineRequest, longest: int) -> None:
    """Refuse what an engine may die of. ``longest`` is its context in tokens, 0 when unknown.

    Raises:
        GatewayError: ``unsupported_parameter``, ``empty_input``, ``context_length_exceeded``, ``invalid_value`` (400).
    """
    if request.lora is not None:
        raise GatewayError("unsupported_parameter", "the engine does not offer LoRA adapters", param="lora_path")
    if not request.ids:
        raise GatewayError("empty_input", "the prompt is empty")
    if longest and len(request.ids) >= longest:
        message = f"the engine's context has {longest} tokens, and the prompt alone {len(request.ids)}"
        raise GatewayError("context_length_exceeded", message)
    highest = request.vocab_size - 1 if request.vocab_size else 2**31 - 1
    if min(request.ids) < 0 or max(request.ids) > highest:
        raise GatewayError("invalid_value", "the prompt has a token id outside the vocabulary", param="prompt")
