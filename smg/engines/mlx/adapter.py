"""Adapter of the MLX contract (spec engine-contract 2 and 3.5): ids only, ``stream`` true on every Generate."""

from collections.abc import Sequence

from smg_grpc_proto import mlx_engine_pb2 as pb

from smg.core.backends import EngineRequest
from smg.engines import protobuf
from smg.engines.base import EngineInfo
from smg.engines.contract import ContractAdapter, unsupported
from smg.engines.labels import flatten
from smg.engines.mlx.decode import MlxDecoder
from smg.engines.mlx.sampling import sampling_params
from smg.engines.parcel import INLINE, Parcel


class MlxAdapter(ContractAdapter):
    """The ``Adapter`` of ``mlx.grpc.engine.MlxEngine``."""

    pb = pb
    name = "mlx"
    service = "mlx.grpc.engine.MlxEngine"
    capabilities = frozenset({"generate", "seed", "logit_bias", "logprobs", "tokenizer_bundle"})

    def generate(self, request: EngineRequest, parcel: Parcel = INLINE) -> bytes:
        """Encode a GenerateRequest. Raises GatewayError (400), see ``sampling_params``."""
        if request.lora is not None:
            raise unsupported("lora_path", "LoRA adapters")
        message = pb.GenerateRequest(
            request_id=request.id,
            sampling_params=sampling_params(request),
            stream=True,
        )
        return protobuf.encode_with_ids(message, request.ids)

    def decoder(self, request: EngineRequest) -> MlxDecoder:
        return MlxDecoder(request)

    def abort(self, ids: Sequence[str], reason: str) -> Sequence[bytes]:
        return [protobuf.encode(pb.AbortRequest(request_ids=ids))]

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        told = protobuf.parse(pb.GetModelInfoResponse, model)
        labels = {**flatten(protobuf.parse(pb.GetServerInfoResponse, server)), **flatten(told)}
        return EngineInfo(
            model_id=told.served_model_name or told.model_path,
            model_path=told.model_path,
            context_length=told.max_context_length,
            max_input_length=told.max_req_input_len,
            vocab_size=told.vocab_size,
            eos_ids=tuple(told.eos_token_ids),
            is_generation=told.is_generation,
            labels=labels,
        )
