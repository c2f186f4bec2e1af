"""Adapter of the vLLM contract (spec engine-contract 2 and 3.2): ids only, ``stream`` true on every Generate."""

from collections.abc import Sequence

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg._native.joined import join
from smg.core.backends import EngineRequest
from smg.engines import media, protobuf
from smg.engines.base import EngineInfo
from smg.engines.capabilities import CONSTRAINTS, VISION
from smg.engines.contract import ContractAdapter, unsupported
from smg.engines.labels import default_sampling, flatten
from smg.engines.parcel import INLINE, Parcel
from smg.engines.vllm.decode import VllmDecoder
from smg.engines.vllm.media import multimodal_inputs
from smg.engines.vllm.names import names
from smg.engines.vllm.sampling import sampling_params


class VllmAdapter(ContractAdapter):
    """The ``Adapter`` of ``vllm.grpc.engine.VllmEngine``."""

    pb = pb
    name = "vllm"
    service = "vllm.grpc.engine.VllmEngine"
    media_dtype = "float32"
    shared_memory = True
    capabilities = CONSTRAINTS | {
        *(
            "generate",
            "n",
            "seed",
            "logit_bias",
            "min_tokens",
            "logprobs",
            "prompt_logprobs",
            "dp_rank",
            "image",
            "video",
        ),
        *("embed", "loads", "tokenizer_bundle", "flush_cache", "profile", "kv_events", "disaggregation"),
    }

    def generate(self, request: EngineRequest, parcel: Parcel = INLINE) -> bytes:
        """Encode a GenerateRequest.

        Raises:
            GatewayError: ``invalid_value`` or ``unsupported_parameter`` (400), see ``sampling_params``.
        """
        if request.lora is not None:
            raise unsupported("lora_path", "LoRA adapters")
        leg = request.leg
        message = pb.GenerateRequest(
            request_id=request.id,
            sampling_params=sampling_params(request),
            # A prefill engine answers once, with what the decode engine needs.
            stream=leg is None or leg.role != "prefill",
            # Rank 0 is a pin too, None is none.
            data_parallel_rank=request.dp_rank,
        )
        if leg is not None and leg.kv_params is not None:
            message.kv_transfer_params_json = leg.kv_params.decode()
        if leg is not None and leg.kv_address is not None:
            message.kv_transfer_params.remote_host, message.kv_transfer_params.remote_port = leg.kv_address
        described = leg is not None and leg.described
        inputs = request.media
        if inputs is None:
            return protobuf.encode_with_ids(message, request.ids)
        message.mm_inputs.CopyFrom(multimodal_inputs(inputs, parcel, pixels=not described))
        encoded = protobuf.encode_with_ids(message, request.ids)
        if rows := media.row_tensors(pb.GenerateRequest, pb.TensorData, "inline", inputs, names(inputs), parcel):
            encoded = join([encoded, *rows])
        return encoded if described else media.with_tensor(encoded, pb.GenerateRequest, "inline", inputs, parcel)

    def decoder(self, request: EngineRequest) -> VllmDecoder:
        return VllmDecoder(request)

    def abort(self, ids: Sequence[str], reason: str) -> Sequence[bytes]:
        return [protobuf.encode(pb.AbortRequest(request_ids=ids))]

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        told = protobuf.parse(pb.GetModelInfoResponse, model)
        labels = {**flatten(protobuf.parse(pb.GetServerInfoResponse, server)), **flatten(told)}
        return EngineInfo(
            model_id=told.served_model_name or told.model_path,
            model_path=told.model_path,
            tokenizer_path=told.tokenizer_path,
            context_length=told.max_context_length,
            max_input_length=max(0, told.max_req_input_len),
            vocab_size=told.vocab_size,
            eos_ids=tuple(told.eos_token_ids),
            is_generation=told.is_generation,
            default_sampling=default_sampling(told.default_sampling_params_json),
            labels=labels,
            lacks=frozenset() if told.supports_vision else VISION,
        )
