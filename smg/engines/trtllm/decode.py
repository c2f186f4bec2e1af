"""Generate answers of the TensorRT-LLM contract (spec engine-contract 2.1, 2.5 and 3.4): one list of rows per chunk."""

from collections.abc import Sequence
from typing import Any

from smg_grpc_proto import trtllm_service_pb2 as pb

from smg._native.wire import Layout
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.engines.decoding import StreamDecoder
from smg.engines.logprobs import row


class TrtllmDecoder(StreamDecoder):
    """Decoder of one Generate stream. ``stop_word`` means stop, like every name that is no failure."""

    response = pb.GenerateResponse
    layout = Layout(
        chunk=2,
        complete=3,
        request_id=1,
        ids=1,
        prompt_tokens=3,
        completion_tokens=4,
        cached_tokens=5,
        index=2,
        cold=(6,),
    )
    index = "sequence_index"
    failures = frozenset({"cancelled", "timeout"})

    def _complete(self, complete: Any) -> TokenBatch:
        batch = super()._complete(complete)
        batch.spec_accepted_tokens = complete.spec_accepted_tokens
        batch.spec_draft_tokens = complete.spec_draft_tokens
        if self._prompt and complete.prompt_logprobs:
            batch.prompt_logprobs = [_row(found, self._top or 0) for found in complete.prompt_logprobs]
        return batch

    def _output_rows(self, ids: Sequence[int], chunk: Any, limit: int) -> list[TokenLogprobs]:
        found = chunk.logprobs
        return [
            _row(found[place], limit) if place < len(found) else TokenLogprobs(token, None)
            for place, token in enumerate(ids)
        ]


def _row(found: Any, limit: int) -> TokenLogprobs:
    return row(found.token_id, found.logprob, ((top.token_id, top.logprob) for top in found.top_logprobs), limit)
