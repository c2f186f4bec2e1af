"""Generate messages of requests that differ in nothing but their id and their prompt (spec engine-contract 2.3).

Most requests ask for the same sampling, and their messages are the same but for a few bytes. What is the same is
encoded once, by the contract's own adapter, and kept as bytes.
"""

from typing import Protocol, TypeAlias

import msgspec

from smg._native.wire_ids import with_ids
from smg.core.backends import EngineRequest
from smg.core.errors import bad_request
from smg.engines.numbers import UINT32_MAX

# How many are kept of one engine.
MOST = 256
# ``string request_id = 1`` in every contract, and the longest id whose length is one byte.
_ID = 0x0A
_LONGEST_ID = 127
# A message with an empty packed field in it, which is how a Generate without ids ends.
_TAIL = 4

_Shape: TypeAlias = tuple[object, ...]


class Encoding(Protocol):
    """The part of an adapter that makes the messages."""

    def generate(self, request: EngineRequest) -> bytes: ...


class Frames:
    """Encodes Generate requests as ``adapter`` does, to the same bytes."""

    def __init__(self, adapter: Encoding) -> None:
        self._adapter = adapter
        # By shape what follows the id, and the numbers of the fields that the ids belong to.
        self._known: dict[_Shape, tuple[bytes, int, int]] = {}

    def generate(self, request: EngineRequest) -> bytes:
        """Encode ``request``, which has no media.

        Raises:
            GatewayError: 400, as the adapter's ``generate``.
        """
        id = request.id.encode()
        shape = None if len(id) > _LONGEST_ID else _shape(request)
        if shape is None:
            return self._adapter.generate(request)
        frame, outer, inner = self._known.get(shape) or self._learn(shape, request)
        try:
            return with_ids(b"%c%c%b%b" % (_ID, len(id), id, frame), request.ids, outer, inner)
        except (ValueError, TypeError):
            raise bad_request(f"token ids must be between 0 and {UINT32_MAX}", "prompt") from None

    def _learn(self, shape: _Shape, request: EngineRequest) -> tuple[bytes, int, int]:
        bare = self._adapter.generate(msgspec.structs.replace(request, id="", ids=()))
        tail = bare[-_TAIL:]
        found = bare[:-_TAIL], tail[0] >> 3, tail[2] >> 3
        assert tail == with_ids(b"", (), found[1], found[2]), "the ids come last in every contract"
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[shape] = found
        return found


def _shape(request: EngineRequest) -> _Shape | None:
    """All that a message depends on besides id and prompt; None for what is too rare, or too large, to be kept."""
    sampling = request.sampling
    if request.leg is not None or request.constraint is not None or sampling.logit_bias or len(request.stop_ids) > 64:
        return None
    return (
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.min_p,
        sampling.frequency_penalty,
        sampling.presence_penalty,
        sampling.repetition_penalty,
        sampling.seed,
        request.limits.max_tokens,
        request.limits.min_tokens,
        request.stop_ids,
        request.ignore_eos,
        request.n,
        request.logprobs,
        request.dp_rank,
        request.lora,
        request.require_reasoning,
    )
