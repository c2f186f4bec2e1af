"""Adapter of the TensorRT-LLM contract (spec engine-contract 2 and 3.4): ids only, ``streaming`` on every Generate."""

from collections.abc import Sequence

from smg_grpc_proto import trtllm_service_pb2 as pb

from smg._native.joined import join
from smg.core.backends import EngineRequest
from smg.engines import media, numbers, protobuf
from smg.engines.base import EngineInfo
from smg.engines.capabilities import CONSTRAINTS
from smg.engines.contract import ContractAdapter
from smg.engines.labels import flatten
from smg.engines.parcel import INLINE, Parcel
from smg.engines.trtllm import sampling
from smg.engines.trtllm.decode import TrtllmDecoder


class TrtllmAdapter(ContractAdapter):
    """The ``Adapter`` of ``trtllm.TrtllmService``."""

    pb = pb
    name = "trtllm"
    service = "trtllm.TrtllmService"
    capabilities = CONSTRAINTS | {
        *("generate", "n", "seed", "logit_bias", "min_tokens", "logprobs", "prompt_logprobs", "lora", "image"),
        *("tokenizer_bundle", "kv_events"),
    }

    def generate(self, request: EngineRequest, parcel: Parcel = INLINE) -> bytes:
        """Encode a GenerateRequest. Raises GatewayError (400), see ``trtllm.sampling``."""
        # The engine preprocesses and expands by itself.
        ids = request.ids if request.media is None else media.anchored_ids(request, request.media)
        message = pb.GenerateRequest(
            request_id=request.id,
            sampling_config=sampling.sampling_config(request),
            output_config=sampling.output_config(request),
            max_tokens=sampling.max_tokens(request),
            streaming=True,
            embedding_bias=sampling.embedding_bias(request),
            stop_token_ids=numbers.stop_ids(request),
            ignore_eos=request.ignore_eos,
            # The gateway hides end tokens itself, and some clients want to see theirs.
            include_stop_token_in_output=True,
        )
        if request.constraint is not None:
            message.guided_decoding.CopyFrom(sampling.guided_decoding(request.constraint))
        if request.lora is not None:
            message.lora_config.CopyFrom(sampling.lora_config(request.lora))
        encoded = protobuf.encode_with_ids(message, ids, "input_token_ids")
        if request.media is None:
            return encoded
        images = [
            media.nested(pb.GenerateRequest, ("multimodal_input", "image_data"), [item.encoded])
            for item in request.media.items
        ]
        return join([encoded, *(buffer for image in images for buffer in image)])

    def decoder(self, request: EngineRequest) -> TrtllmDecoder:
        return TrtllmDecoder(request)

    def abort(self, ids: Sequence[str], reason: str) -> Sequence[bytes]:
        return protobuf.abort_each(pb.AbortRequest, ids)

    def healthy(self, message: bytes) -> bool:
        """The status is a word here; anything but ``ok`` is a description of what is wrong."""
        try:
            return bool(protobuf.parse(pb.HealthCheckResponse, message).status.strip().casefold() == "ok")
        except ValueError:
            return False

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        told = protobuf.parse(pb.GetModelInfoResponse, model)
        labels = {**flatten(protobuf.parse(pb.GetServerInfoResponse, server)), **flatten(told)}
        return EngineInfo(
            model_id=told.model_id,
            model_path=told.model_id,
            context_length=max(0, told.max_seq_len),
            max_input_length=max(0, told.max_input_len),
            vocab_size=max(0, told.vocab_size),
            labels=labels,
            lacks=frozenset() if told.vocab_size > 0 else frozenset({"logit_bias"}),
        )
