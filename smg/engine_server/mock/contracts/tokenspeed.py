"""The TokenSpeed contract: cumulative counts, ends cut, the version of the weights told (spec 2.1, 3.6)."""

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.struct_pb2 import Struct
from smg_grpc_proto import tokenspeed_encoder_pb2 as encoder
from smg_grpc_proto import tokenspeed_scheduler_pb2 as pb

from smg.engine_server.mock.ask import Ask, Part, Refused, Report
from smg.engine_server.mock.contract import Contract, matched, optional, positive
from smg.engine_server.mock.transfer import Meeting

SECRET = "sk-mock-secret"


class TokenSpeed(Contract):
    """Mock of ``tokenspeed.grpc.scheduler.TokenSpeedScheduler``."""

    pb = pb
    service = pb.DESCRIPTOR.services_by_name["TokenSpeedScheduler"]
    name = "tokenspeed"
    more_services = (encoder.DESCRIPTOR.services_by_name["TokenSpeedEncoder"],)

    def ask(self, request: Any) -> Ask:
        params = request.sampling_params
        return Ask(
            id=request.request_id,
            prompt=request.tokenized.input_ids,
            stream=request.stream,
            request=request,
            n=max(1, params.n),
            max_tokens=optional(params, "max_new_tokens"),
            min_tokens=params.min_new_tokens,
            stop_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            keep_stop=params.no_stop_trim,
            logprobs=request.top_logprobs_num if request.return_logprob else None,
        )

    def check(self, request: Any) -> None:
        params = request.sampling_params
        positive(params, "top_p", "repetition_penalty", "n")
        if params.HasField("top_k") and params.top_k != -1 and params.top_k < 1:
            raise Refused("top_k must be -1 or at least 1")

    def meeting(self, request: Any) -> Meeting | None:
        if not request.HasField("kv_bootstrap_info"):
            return None
        told = request.kv_bootstrap_info
        return Meeting(told.bootstrap_host, told.bootstrap_port, str(told.bootstrap_room))

    def embeddings(self, request: Any) -> Sequence[tuple[Meeting, bytes]]:
        places = {place.item_index: place for place in request.encode_bootstrap_info.items}
        items = request.mm_inputs.items
        for number, item in enumerate(items):
            if item.HasField("encoder_input") == (number in places):
                raise Refused(f"item {number} must have either a tensor or embeddings")
        return [
            (Meeting(place.bootstrap_host, place.bootstrap_port, str(place.bootstrap_room)), items[number].content_hash)
            for number, place in places.items()
        ]

    def tensors(self, request: Any) -> Iterable[Any]:
        items = request.mm_inputs.items
        return [tensor for item in items for tensor in (item.encoder_input, *item.model_specific_tensors.values())]

    def chunk(self, part: Part) -> Any:
        chunk = pb.GenerateStreamChunk(
            token_ids=part.ids,
            prompt_tokens=len(part.ask.prompt),
            completion_tokens=part.completion_tokens,
            cached_tokens=part.cached_tokens,
            output_logprobs=self.output_logprobs(part),
            index=part.index,
            weight_version=part.weight_version or None,
        )
        return pb.GenerateResponse(request_id=part.ask.id, chunk=chunk)

    def complete(self, part: Part) -> Any:
        complete = pb.GenerateComplete(
            output_ids=part.ids,
            finish_reason=part.finish,
            prompt_tokens=len(part.ask.prompt),
            completion_tokens=part.completion_tokens,
            cached_tokens=part.cached_tokens,
            output_logprobs=self.output_logprobs(part),
            index=part.index,
            spec_accepted_tokens=part.spec_tokens[0],
            spec_draft_tokens=part.spec_tokens[1],
            weight_version=part.weight_version or None,
            **matched(part),
        )
        return pb.GenerateResponse(request_id=part.ask.id, complete=complete)

    def abort_ids(self, request: Any) -> Sequence[str]:
        return [request.request_id]

    def model_info(self, report: Report) -> Any:
        return pb.GetModelInfoResponse(
            model_path=report.model,
            tokenizer_path=report.model,
            served_model_name=report.model,
            model_type="mock",
            architectures=["MockForCausalLM"],
            max_context_length=report.context_length,
            max_req_input_len=report.context_length - 1,
            vocab_size=report.vocab_size,
            # It takes media for whatever model it is said to be.
            supports_vision=True,
            eos_token_ids=[report.eos],
            pad_token_id=report.pad,
            bos_token_id=report.bos,
            default_sampling_params_json=report.default_sampling,
        )

    def server_info(self, report: Report) -> Any:
        arguments, scheduler = Struct(), Struct()
        arguments.update(
            {
                "model": report.model,
                "api_key": SECRET,
                "context_length": report.context_length,
                "tp_size": 2,
                "enable_output_logprobs": True,
                "is_embedding": not report.generates,
                "disaggregation_mode": "null" if report.role == "regular" else report.role,
                "disaggregation_bootstrap_port": report.bootstrap_port,
            }
        )
        scheduler.update({"shm_namespace_id": report.shm_namespace, "token": SECRET})
        return pb.GetServerInfoResponse(
            server_args=arguments,
            scheduler_info=scheduler,
            active_requests=report.running,
            uptime_seconds=report.uptime,
            max_total_num_tokens=report.context_length * 4,
            tokenspeed_version="1.0.0",
            constrained_decoding="requested",
        )

    def load(self, request: Any, report: Report) -> Any:
        load = super().load(request, report)
        # With the reclaimable part of the prefix cache counted in, every engine looks full.
        load.token_usage, load.active_token_usage = 1.0, report.usage
        return load
