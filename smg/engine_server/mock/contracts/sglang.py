"""The SGLang contract: cumulative counts, abort by prefix, unnumbered choices without stream (spec 2.1, 2.2, 3.3)."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.struct_pb2 import Struct
from smg_grpc_proto import sglang_scheduler_pb2 as pb

from smg.engine_server.mock.ask import Ask, Part, Refused, Report
from smg.engine_server.mock.contract import Contract, matched, optional, positive
from smg.engine_server.mock.transfer import Meeting

_SECTIONS = frozenset({"core", "disagg", "queues", "memory"})
SECRET = "sk-mock-secret"


class Sglang(Contract):
    """Mock of ``sglang.grpc.scheduler.SglangScheduler``."""

    pb = pb
    service = pb.DESCRIPTOR.services_by_name["SglangScheduler"]
    name = "sglang"

    def ask(self, request: Any) -> Ask:
        params = request.sampling_params
        wanted = request.return_logprob
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
            logprobs=request.top_logprobs_num if wanted else None,
            prompt_logprobs=request.top_logprobs_num if wanted and request.logprob_start_len >= 0 else None,
        )

    def check(self, request: Any) -> None:
        params = request.sampling_params
        positive(params, "top_p", "repetition_penalty", "n")
        if params.top_k != -1 and params.top_k < 1:
            raise Refused("top_k must be -1 or at least 1")
        if params.stop:
            raise Refused("this worker has no tokenizer: stop strings cannot be matched")

    def one_by_one(self, ask: Ask) -> bool:
        return not ask.stream

    def meeting(self, request: Any) -> Meeting | None:
        if not request.HasField("disaggregated_params"):
            return None
        told = request.disaggregated_params
        return Meeting(told.bootstrap_host, told.bootstrap_port, str(told.bootstrap_room))

    def chunk(self, part: Part) -> Any:
        chunk = pb.GenerateStreamChunk(
            token_ids=part.ids,
            prompt_tokens=len(part.ask.prompt),
            completion_tokens=part.completion_tokens,
            cached_tokens=part.cached_tokens,
            reasoning_tokens=part.reasoning_tokens,
            output_logprobs=self.output_logprobs(part),
            input_logprobs=self.input_logprobs(part),
            index=part.index,
        )
        return pb.GenerateResponse(request_id=part.ask.id, chunk=chunk)

    def complete(self, part: Part) -> Any:
        complete = pb.GenerateComplete(
            output_ids=part.ids,
            finish_reason=part.finish,
            prompt_tokens=len(part.ask.prompt),
            completion_tokens=part.completion_tokens,
            cached_tokens=part.cached_tokens,
            reasoning_tokens=part.reasoning_tokens,
            output_logprobs=self.output_logprobs(part),
            input_logprobs=self.input_logprobs(part),
            index=part.index if part.ask.stream else 0,
            spec_accepted_tokens=part.spec_tokens[0],
            spec_draft_tokens=part.spec_tokens[1],
            **matched(part),
        )
        return pb.GenerateResponse(request_id=part.ask.id, complete=complete)

    def abort_ids(self, request: Any) -> Sequence[str]:
        return [request.request_id]

    def hits(self, named: str, running: str) -> bool:
        return running.startswith(named)

    def model_info(self, report: Report) -> Any:
        return pb.GetModelInfoResponse(
            model_path=report.model,
            tokenizer_path=report.model,
            is_generation=report.generates,
            served_model_name=report.model,
            # The size of the KV pool, as this engine has it.
            max_context_length=report.context_length * 4,
            vocab_size=report.vocab_size,
            # It takes media for whatever model it is said to be.
            supports_vision=True,
            model_type="mock",
            eos_token_ids=[report.eos],
            pad_token_id=report.pad,
            bos_token_id=report.bos,
            max_req_input_len=report.context_length - 1,
            architectures=["MockForCausalLM"],
            default_sampling_params_json=report.default_sampling,
        )

    def server_info(self, report: Report) -> Any:
        arguments = Struct()
        arguments.update(
            {
                "model_path": report.model,
                "api_key": SECRET,
                "context_length": report.context_length,
                "tp_size": 2,
                "max_running_requests": 256,
                "is_embedding": not report.generates,
                "disaggregation_mode": "null" if report.role == "regular" else report.role,
                "disaggregation_bootstrap_port": report.bootstrap_port,
            }
        )
        return pb.GetServerInfoResponse(
            server_args=arguments,
            active_requests=report.running,
            uptime_seconds=report.uptime,
            sglang_version="0.5.21",
            server_type="grpc",
            max_total_num_tokens=report.context_length * 4,
        )

    def load(self, request: Any, report: Report) -> Any:
        unknown = set(request.include) - _SECTIONS
        if unknown:
            raise Refused(f"unknown sections: {', '.join(sorted(unknown))}")
        return super().load(request, report)
