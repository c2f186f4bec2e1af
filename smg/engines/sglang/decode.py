"""Generate answers of the SGLang contract (spec engine-contract 2.1 and 3.3)."""

from typing import Any

from smg_grpc_proto import sglang_scheduler_pb2 as pb

from smg._native.wire import Layout
from smg.core.batch import TokenBatch
from smg.engines.decoding import StreamDecoder


class SglangDecoder(StreamDecoder):
    """Decoder of one Generate stream."""

    response = pb.GenerateResponse
    layout = Layout(
        chunk=2,
        complete=3,
        request_id=1,
        ids=1,
        prompt_tokens=2,
        completion_tokens=3,
        cached_tokens=4,
        index=8,
        reasoning_tokens=9,
        cold=(5, 6, 7),
    )

    def _chunk(self, chunk: Any) -> TokenBatch:
        batch = super()._chunk(chunk)
        batch.prompt_logprobs = self._prompt_rows(chunk)
        batch.reasoning_tokens = chunk.reasoning_tokens
        return batch

    def _complete(self, complete: Any) -> TokenBatch:
        batch = super()._complete(complete)
        batch.prompt_logprobs = self._prompt_rows(complete)
        batch.reasoning_tokens = complete.reasoning_tokens
        batch.spec_accepted_tokens = complete.spec_accepted_tokens
        batch.spec_draft_tokens = complete.spec_draft_tokens
        return batch
