"""Adapter of the SGLang contract (spec engine-contract 2 and 3.3): ids only, ``stream`` true on every Generate.

Streaming is not only for speed: without it the choices of one request come without their numbers (2.2).
"""

from collections.abc import Sequence

from msgspec.structs import replace
from smg_grpc_proto import sglang_scheduler_pb2 as pb

from smg.core.backends import EngineRequest
from smg.engines import labels, media, protobuf
from smg.engines.base import EngineInfo, EngineLoad
from smg.engines.capabilities import CONSTRAINTS, VISION
from smg.engines.contract import GENERATING_HEALTH_SECS, ContractAdapter
from smg.engines.parcel import INLINE, Parcel
from smg.engines.sglang.decode import SglangDecoder
from smg.engines.sglang.media import multimodal_inputs
from smg.engines.sglang.sampling import sampling_params


class SglangAdapter(ContractAdapter):
    """The ``Adapter`` of ``sglang.grpc.scheduler.SglangScheduler``."""

    pb = pb
    name = "sglang"
    service = "sglang.grpc.scheduler.SglangScheduler"
    health_secs = GENERATING_HEALTH_SECS
    media_dtype = "float32"
    capabilities = CONSTRAINTS | {
        *("generate", "n", "logit_bias", "min_tokens", "logprobs", "prompt_logprobs", "lora", "dp_rank", "image"),
        *("embed", "loads", "tokenizer_bundle", "flush_cache", "profile", "kv_events", "disaggregation"),
    }

    def generate(self, request: EngineRequest, parcel: Parcel = INLINE) -> bytes:
        """Encode a GenerateRequest. Raises GatewayError (400), see ``sampling_params``."""
        wanted = request.logprobs
        message = pb.GenerateRequest(
            request_id=request.id,
            sampling_params=sampling_params(request),
            return_logprob=wanted is not None,
            # From which prompt token on: 0 is all of them, -1 none.
            logprob_start_len=0 if wanted is not None and wanted.prompt else -1,
            top_logprobs_num=wanted.top if wanted is not None else 0,
            lora_id=request.lora or "",
            data_parallel_rank=request.dp_rank,
            stream=True,
            # The engine's own metrics are to count our requests too.
            log_metrics=True,
            require_reasoning=request.require_reasoning,
        )
        if request.leg is not None and request.leg.bootstrap is not None:
            meeting = request.leg.bootstrap
            message.disaggregated_params.bootstrap_host = meeting.host
            message.disaggregated_params.bootstrap_port = meeting.port
            message.disaggregated_params.bootstrap_room = meeting.room
        # A decode engine gets the computed prompt.
        inputs = None if request.leg is not None and request.leg.role == "decode" else request.media
        if inputs is not None:
            message.mm_inputs.CopyFrom(multimodal_inputs(inputs, parcel))
        encoded = protobuf.encode_with_ids(message, request.ids)
        return media.with_tensor(encoded, pb.GenerateRequest, "data", inputs, parcel)

    def loads_request(self) -> bytes:
        return protobuf.encode(pb.GetLoadsRequest(include=["core", "disagg"]))

    def loads(self, message: bytes) -> list[EngineLoad]:
        """As of any engine; what waits for a transfer to or from the other engine of a pair counts as waiting."""
        queues = [_transfers(load) for load in protobuf.parse(pb.GetLoadsResponse, message).loads]
        ranks = super().loads(message)
        return [replace(rank, waiting=rank.waiting + queue) for rank, queue in zip(ranks, queues, strict=True)]

    def decoder(self, request: EngineRequest) -> SglangDecoder:
        return SglangDecoder(request)

    def abort(self, ids: Sequence[str], reason: str) -> Sequence[bytes]:
        return protobuf.abort_each(pb.AbortRequest, ids, reason=reason)

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        told = protobuf.parse(pb.GetModelInfoResponse, model)
        serving = protobuf.parse(pb.GetServerInfoResponse, server)
        found = labels.flatten(told) | labels.flatten(serving)
        found |= labels.server_arguments(serving.server_args, "model_path", "tokenizer_path")
        # It holds the size of the KV pool here.
        found.pop("max_context_length", None)
        longest = max(0, told.max_req_input_len)
        sampling = labels.default_sampling(told.default_sampling_params_json)
        return EngineInfo(
            model_id=told.served_model_name or told.model_path,
            model_path=told.model_path,
            tokenizer_path=told.tokenizer_path,
            context_length=labels.count(serving.server_args, "context_length") or longest,
            max_input_length=longest,
            vocab_size=max(0, told.vocab_size),
            eos_ids=tuple(told.eos_token_ids),
            is_generation=told.is_generation,
            default_sampling=sampling or labels.default_sampling(told.preferred_sampling_params),
            labels=found,
            lacks=frozenset() if told.supports_vision else VISION,
        )


def _transfers(load: pb.SchedulerLoad) -> int:
    """Requests in a prefill or decode engine's own queues (spec engine-contract 2.9)."""
    queues = load.disaggregation
    return int(
        queues.prefill_prealloc_queue_reqs
        + queues.prefill_inflight_queue_reqs
        + queues.decode_prealloc_queue_reqs
        + queues.decode_transfer_queue_reqs
        + queues.decode_retracted_queue_reqs
    )
