"""Generate answers of the TokenSpeed contract (spec engine-contract 2.1, 3.6), with the version of the weights."""

from typing import Any

from smg_grpc_proto import tokenspeed_scheduler_pb2 as pb

from smg._native.wire import Layout
from smg.core.batch import TokenBatch
from smg.engines.decoding import StreamDecoder


class TokenSpeedDecoder(StreamDecoder):
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
        index=6,
        label=7,
        cold=(5,),
    )

    def _chunk(self, chunk: Any) -> TokenBatch:
        batch = super()._chunk(chunk)
        batch.weight_version = chunk.weight_version
        return batch

    def _complete(self, complete: Any) -> TokenBatch:
        batch = super()._complete(complete)
        batch.weight_version = complete.weight_version
        batch.spec_accepted_tokens = complete.spec_accepted_tokens
        batch.spec_draft_tokens = complete.spec_draft_tokens
        return batch
