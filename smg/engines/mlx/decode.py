"""Generate answers of the MLX contract (spec engine-contract 2.1 and 3.5): a Complete has no ids."""

from typing import Any

from smg_grpc_proto import mlx_engine_pb2 as pb

from smg._native.wire import Layout
from smg.engines.decoding import StreamDecoder


class MlxDecoder(StreamDecoder):
    """Decoder of one Generate stream."""

    response = pb.GenerateResponse
    layout = Layout(
        chunk=1,
        complete=2,
        ids=1,
        prompt_tokens=2,
        completion_tokens=3,
        cached_tokens=4,
        index=6,
        cold=(5,),
    )

    def _matched(self, complete: Any) -> int | None:
        return complete.matched_stop_token_id if complete.HasField("matched_stop_token_id") else None
