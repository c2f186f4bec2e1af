"""Generate answers of the vLLM contract (spec engine-contract 2.1 and 3.2): counts are deltas and are not used."""

import contextlib
from collections.abc import Callable
from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg._native import wire
from smg.core.batch import TokenBatch
from smg.engines.decoding import StreamDecoder
from smg.engines.transport.base import Tokens


class VllmDecoder(StreamDecoder):
    """Decoder of one Generate stream, whose plain chunks a transport may read itself."""

    response = pb.GenerateResponse

    @property
    def plain(self) -> Callable[[Tokens], TokenBatch] | None:
        return self._plain if self._top is None else None

    def decode(self, message: bytes) -> list[TokenBatch]:
        plain = None
        if self._top is None:
            # The generated contract says what is wrong with a message that is none.
            with contextlib.suppress(ValueError):
                plain = wire.chunk(message)
        if plain is None:
            return super().decode(message)
        index, ids, prompt_tokens, _, cached_tokens = plain
        cached = self._best_cached(index, cached_tokens)
        return [TokenBatch(index=index, ids=ids, prompt_tokens=prompt_tokens, cached_tokens=cached)]

    def _plain(self, tokens: Tokens) -> TokenBatch:
        return TokenBatch(
            index=tokens.index,
            ids=tokens.ids,
            prompt_tokens=tokens.prompt_tokens,
            cached_tokens=self._best_cached(tokens.index, tokens.cached_tokens),
        )

    def _chunk(self, chunk: Any) -> TokenBatch:
        batch = super()._chunk(chunk)
        batch.prompt_logprobs = self._prompt_rows(chunk)
        return batch

    def _complete(self, complete: Any) -> TokenBatch:
        batch = super()._complete(complete)
        batch.prompt_logprobs = self._prompt_rows(complete)
        batch.spec_accepted_tokens = complete.spec_accepted_tokens
        batch.spec_draft_tokens = complete.spec_draft_tokens
        if complete.kv_transfer_params_json:
            batch.kv_params = complete.kv_transfer_params_json.encode()
        return batch
