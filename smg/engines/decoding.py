"""Generate answers as TokenBatches: what the decoders of all contracts have in common (spec engine-contract 2.1, 2.5).

Requests always stream, so tokens and log probabilities come from chunks alone. What a Complete repeats of them differs
from contract to contract (the last delta, everything, nothing) and is never read; whoever consumes the batches counts
their ids.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from smg._native.id_list import are_ids
from smg._native.wire import Layout
from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.engines import logprobs, protobuf
from smg.engines.transport.base import Tokens

# Anything else is the engine's own way to say stop: unset, or a name newer than this table (repetition).
_FINISHES: Mapping[str, str] = {"length": "length", "abort": "abort", "error": "error"}


def check_ids(ids: Sequence[int]) -> None:
    """Raise ValueError when an engine has sent what is no token id: no vocabulary has more than 31 bits."""
    if not are_ids(ids):
        raise ValueError("a token id that is not between 0 and 2147483647")


class StreamDecoder:
    """Decoder of one Generate stream. Remembers per choice the best cached count, and whose prompt logprobs are out.

    ``response`` is the generated class of the answer, a oneof of ``chunk`` and ``complete``, and ``layout`` where its
    plain chunks have what (a field that it does not name is passed over); ``index`` is the name of the field with the
    choice; ``failures`` are the contract's own names for generations that were given up.
    """

    response: ClassVar[Any]
    layout: ClassVar[Layout]
    index: ClassVar[str] = "index"
    failures: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, request: EngineRequest) -> None:
        wanted = request.logprobs
        self._top = wanted.top if wanted is not None else None
        self._prompt = wanted is not None and wanted.prompt
        self._prompt_told: set[int] = set()
        self._cached: dict[int, int] = {}

    @property
    def plain(self) -> Callable[[Tokens], TokenBatch] | None:
        """See ``base.Decoder``. Made when asked for: a decoder that kept a method of its own would be a cycle."""
        return self._plain if self._top is None else None

    def decode(self, message: bytes) -> list[TokenBatch]:
        """Decode one answer into one batch, or none when it has neither part. Raises ValueError for what is none."""
        response = protobuf.parse(self.response, message)
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
            reasoning_tokens=tokens.reasoning_tokens,
        )

    def _chunk(self, chunk: Any) -> TokenBatch:
        ids = list(chunk.token_ids)
        index = getattr(chunk, self.index)
        return TokenBatch(
            index=index,
            ids=ids,
            logprobs=None if self._top is None else self._output_rows(ids, chunk, self._top),
            prompt_tokens=chunk.prompt_tokens,
            cached_tokens=self._best_cached(index, chunk.cached_tokens),
        )

    def _complete(self, complete: Any) -> TokenBatch:
        index = getattr(complete, self.index)
        return TokenBatch(
            index=index,
            finish=self._finish(complete.finish_reason),
            matched_stop=self._matched(complete),
            prompt_tokens=complete.prompt_tokens,
            cached_tokens=self._best_cached(index, complete.cached_tokens),
        )

    def _output_rows(self, ids: Sequence[int], chunk: Any, limit: int) -> list[TokenLogprobs]:
        return logprobs.output_rows(ids, chunk.output_logprobs, limit)

    def _prompt_rows(self, message: Any) -> list[TokenLogprobs] | None:
        """The prompt's log probabilities, the first time that a choice's message has them."""
        if not self._prompt or message.index in self._prompt_told or not message.HasField("input_logprobs"):
            return None
        self._prompt_told.add(message.index)
        return logprobs.prompt_rows(message.input_logprobs, self._top or 0)

    def _finish(self, told: str) -> str:
        return "abort" if told in self.failures else _FINISHES.get(told, "stop")

    def _matched(self, complete: Any) -> int | str | None:
        matched = complete.WhichOneof("matched_stop")
        return getattr(complete, matched) if matched else None

    def _best_cached(self, index: int, count: int) -> int:
        """Early chunks may say 0: keep the highest count the choice has shown."""
        best = self._cached.get(index, 0)
        if count > best:
            self._cached[index] = best = count
        return best
