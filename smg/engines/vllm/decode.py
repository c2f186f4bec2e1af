"""Generate answers of the vLLM contract as TokenBatches (spec engine-contract 2.1 and 2.5).

Requests always stream, so tokens and logprobs come from chunks alone: a Complete repeats the last delta, which must not
be counted twice. Completion counts of the engine are deltas and are not used; whoever consumes the batches counts ids.
"""

import math
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.engines.transport.base import Tokens

# JSON has no infinity; a token that could not be sampled gets the value OpenAI reports for one.
_LOWEST = -9999.0
_FINISHES = frozenset({"stop", "length", "abort", "error"})


class VllmDecoder:
    """Decoder of one Generate stream. Remembers per choice the best cached count, and whose prompt logprobs are out."""

    def __init__(self, request: EngineRequest) -> None:
        self._top = request.logprobs.top if request.logprobs is not None else None
        self._prompt = request.logprobs is not None and request.logprobs.prompt
        self._prompt_told: set[int] = set()
        self._cached: dict[int, int] = {}
        self.plain: Callable[[Tokens], TokenBatch] | None = self._plain if request.logprobs is None else None

    def decode(self, message: bytes) -> list[TokenBatch]:
        """Decode one GenerateResponse into one batch, or none when it has neither part.

        Raises:
            ValueError: the bytes are no GenerateResponse.
        """
        try:
            response = pb.GenerateResponse.FromString(message)
        except DecodeError as error:
            raise ValueError(f"not a GenerateResponse: {error}") from None
        match response.WhichOneof("response"):
            case "chunk":
                return [self._chunk(response.chunk)]
            case "complete":
                return [self._complete(response.complete)]
            case _:
                return []

    def _plain(self, tokens: Tokens) -> TokenBatch:
        return TokenBatch(
            index=tokens.index,
            ids=tokens.ids,
            prompt_tokens=tokens.prompt_tokens,
            cached_tokens=self._best_cached(tokens.index, tokens.cached_tokens),
        )

    def _chunk(self, chunk: Any) -> TokenBatch:
        ids = list(chunk.token_ids)
        return TokenBatch(
            index=chunk.index,
            ids=ids,
            logprobs=self._logprobs(ids, chunk),
            prompt_logprobs=self._prompt_logprobs(chunk),
            prompt_tokens=chunk.prompt_tokens,
            cached_tokens=self._best_cached(chunk.index, chunk.cached_tokens),
        )

    def _complete(self, complete: Any) -> TokenBatch:
        kv_params = complete.kv_transfer_params_json
        matched = complete.WhichOneof("matched_stop")
        return TokenBatch(
            index=complete.index,
            prompt_logprobs=self._prompt_logprobs(complete),
            # Unset means stop, and so do names newer engines have for ends of their own (repetition).
            finish=complete.finish_reason if complete.finish_reason in _FINISHES else "stop",
            matched_stop=getattr(complete, matched) if matched else None,
            prompt_tokens=complete.prompt_tokens,
            cached_tokens=self._best_cached(complete.index, complete.cached_tokens),
            spec_accepted_tokens=complete.spec_accepted_tokens,
            spec_draft_tokens=complete.spec_draft_tokens,
            kv_params=kv_params.encode() if kv_params else None,
        )

    def _best_cached(self, index: int, count: int) -> int:
        """Early chunks may say 0: keep the highest count the choice has shown."""
        best = max(count, self._cached.get(index, 0))
        self._cached[index] = best
        return best

    def _logprobs(self, ids: list[int], chunk: Any) -> list[TokenLogprobs] | None:
        if self._top is None:
            return None
        found = chunk.output_logprobs
        return _rows(ids, list(found.token_logprobs), found.top_logprobs, self._top)

    def _prompt_logprobs(self, message: Any) -> list[TokenLogprobs] | None:
        if not self._prompt or message.index in self._prompt_told or not message.HasField("input_logprobs"):
            return None
        self._prompt_told.add(message.index)
        found = message.input_logprobs
        values = [row.value if row.HasField("value") else None for row in found.token_logprobs]
        return _rows(list(found.token_ids), values, found.top_logprobs, self._top or 0)


def _rows(ids: list[int], values: list[Any], tops: Any, limit: int) -> list[TokenLogprobs]:
    """One row per id; arrays shorter than ``ids`` lack their tail."""
    rows = []
    for place, token in enumerate(ids):
        value = _finite(values[place]) if place < len(values) else None
        top = _best(tops[place], limit) if limit and place < len(tops) else ()
        rows.append(TokenLogprobs(token=token, logprob=value, top=top))
    return rows


def _best(candidates: Any, limit: int) -> tuple[tuple[int, float], ...]:
    """The engine puts the sampled token first and may repeat it at its rank: sort by value, dedupe, cut."""
    seen: dict[int, float] = {}
    for token, value in zip(candidates.token_ids, candidates.values, strict=False):
        clean = _finite(value)
        if clean is not None and token not in seen:
            seen[token] = clean
    return tuple(sorted(seen.items(), key=lambda pair: -pair[1])[:limit])


def _finite(value: float | None) -> float | None:
    if value is None or math.isnan(value):
        return None
    return max(value, _LOWEST)
