"""Adapter of the TokenSpeed contract (spec engine-contract 2 and 3.6): ids only, ``stream`` true on every Generate."""

from collections.abc import Sequence
from typing import Any

from smg_grpc_proto import tokenspeed_scheduler_pb2 as pb

from smg._native.joined import join
from smg.core.backends import EngineRequest, Leg
from smg.core.media import MediaItem
from smg.engines import labels, protobuf
from smg.engines.base import EngineInfo
from smg.engines.capabilities import CONSTRAINTS, VISION
from smg.engines.contract import GENERATING_HEALTH_SECS, ContractAdapter, unsupported
from smg.engines.parcel import INLINE, Parcel
from smg.engines.tokenspeed import encoder
from smg.engines.tokenspeed.decode import TokenSpeedDecoder
from smg.engines.tokenspeed.media import pieces
from smg.engines.tokenspeed.sampling import sampling_params

_LOGPROBS = "enable_output_logprobs"


class TokenSpeedAdapter(ContractAdapter):
    """The ``Adapter`` of ``tokenspeed.grpc.scheduler.TokenSpeedScheduler``."""

    pb = pb
    name = "tokenspeed"
    service = "tokenspeed.grpc.scheduler.TokenSpeedScheduler"
    encoder_service = encoder.SERVICE
    health_secs = GENERATING_HEALTH_SECS
    media_dtype = "bfloat16"
    shared_memory = True
    capabilities = CONSTRAINTS | {
        *("generate", "n", "seed", "logit_bias", "min_tokens", "logprobs", "dp_rank", "image", "audio", "video"),
        *("mixed_media",),
        *("loads", "tokenizer_bundle", "flush_cache", "profile", "kv_events", "disaggregation", "encode"),
    }

    def generate(self, request: EngineRequest, parcel: Parcel = INLINE) -> bytes:
        """Encode a GenerateRequest. Raises GatewayError (400), see ``sampling_params``."""
        wanted = request.logprobs
        if request.lora is not None:
            raise unsupported("lora_path", "LoRA adapters")
        if wanted is not None and wanted.prompt:
            raise unsupported("logprobs", "log probabilities of the prompt")
        message = pb.GenerateRequest(
            request_id=request.id,
            sampling_params=sampling_params(request),
            return_logprob=wanted is not None,
            top_logprobs_num=wanted.top if wanted is not None else 0,
            stream=True,
            data_parallel_rank=request.dp_rank,
        )
        if request.leg is not None:
            _pair(message, request.leg)
        encoded = protobuf.encode_with_ids(message, request.ids)
        if request.media is None:
            return encoded
        # Who gets embeddings, or a computed prompt, has no use for pixels.
        described = request.leg is not None and (request.leg.role == "decode" or bool(request.leg.encoders))
        return join([encoded, *pieces(request.media, parcel, pixels=not described)])

    def decoder(self, request: EngineRequest) -> TokenSpeedDecoder:
        return TokenSpeedDecoder(request)

    def abort(self, ids: Sequence[str], reason: str) -> Sequence[bytes]:
        return protobuf.abort_each(pb.AbortRequest, ids, reason=reason)

    def encode(self, request_id: str, item: MediaItem, token_id: int, room: int, parcel: Parcel = INLINE) -> bytes:
        return encoder.encode_request(request_id, item, token_id, room, parcel)

    def encoded(self, message: bytes) -> bool:
        return encoder.accepted(message)

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        told = protobuf.parse(pb.GetModelInfoResponse, model)
        serving = protobuf.parse(pb.GetServerInfoResponse, server)
        arguments = serving.server_args
        found = labels.flatten(told) | labels.flatten(serving)
        found |= labels.server_arguments(arguments, "model", "tokenizer")
        found |= labels.struct_labels(serving.scheduler_info, ("shm_namespace_id",))
        longest = max(0, told.max_req_input_len)
        return EngineInfo(
            model_id=told.served_model_name or told.model_path,
            model_path=told.model_path,
            tokenizer_path=told.tokenizer_path,
            context_length=labels.count(arguments, "context_length") or max(0, told.max_context_length) or longest,
            max_input_length=longest,
            vocab_size=max(0, told.vocab_size),
            eos_ids=tuple(told.eos_token_ids),
            is_generation=_generates(arguments),
            default_sampling=labels.default_sampling(told.default_sampling_params_json),
            labels=found,
            lacks=_lacks(arguments) | (frozenset() if told.supports_vision else VISION),
        )


def _pair(message: pb.GenerateRequest, leg: Leg) -> None:
    """Tell the engine where to meet the other one of its pair, and where each media item's embeddings come from."""
    if leg.bootstrap is not None:
        meeting = leg.bootstrap
        message.kv_bootstrap_info.bootstrap_host = meeting.host
        message.kv_bootstrap_info.bootstrap_port = meeting.port
        message.kv_bootstrap_info.bootstrap_room = meeting.room
    for number, place in enumerate(leg.encoders):
        message.encode_bootstrap_info.items.add(
            item_index=number,
            bootstrap_host=place.host,
            bootstrap_port=place.port,
            bootstrap_room=place.room,
        )


def _generates(arguments: Any) -> bool:
    """Encode workers answer this service too, but refuse Generate."""
    return not _encodes(arguments) and labels.scalars(arguments, ("is_embedding",)).get("is_embedding") is not True


def _encodes(arguments: Any) -> bool:
    return labels.scalars(arguments, ("disaggregation_mode",)).get("disaggregation_mode") == "encode"


def _lacks(arguments: Any) -> frozenset[str]:
    """Features that are off: log probabilities have a switch, a pin works where ``dp_size`` is told, and only encode
    workers encode."""
    lacks = set() if _encodes(arguments) else {"encode"}
    if labels.scalars(arguments, (_LOGPROBS,)).get(_LOGPROBS) is False:
        lacks.add("logprobs")
    if labels.count(arguments, "dp_size") <= 1:
        lacks.add("dp_rank")
    return frozenset(lacks)
