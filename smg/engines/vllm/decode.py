"""Generate answers of the vLLM contract (spec engine-contract 2.1 and 3.2): counts are deltas and are not used."""

from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg._native.wire import Layout
from smg.core.batch import TokenBatch
from smg.engines.decoding import StreamDecoder


class VllmDecoder(StreamDecoder):
    """Decoder of one Generate stream."""

    response = pb.GenerateResponse
    layout = Layout(
        chunk=1,
        complete=2,
        ids=1,
        prompt_tokens=2,
        completion_tokens=3,
        cached_tokens=4,
        index=7,
        cold=(5, 6),
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
