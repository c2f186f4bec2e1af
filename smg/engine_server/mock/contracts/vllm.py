"""The vLLM contract: delta counts, the Complete repeats the last delta, ends are kept (spec 2.1, 3.2)."""

from collections.abc import Sequence
from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.mock import logprobs, tokenizer
from smg.engine_server.mock.ask import Ask, Part, Refused, Report
from smg.engine_server.mock.contract import Contract, matched, optional, positive


class Vllm(Contract):
    """Mock of ``vllm.grpc.engine.VllmEngine``."""

    pb = pb
    service = pb.DESCRIPTOR.services_by_name["VllmEngine"]
    name = "vllm"
    delta_counts = True

    def ask(self, request: Any) -> Ask:
        params = request.sampling_params
        text = request.WhichOneof("input") == "text"
        return Ask(
            id=request.request_id,
            prompt=tokenizer.encode_text(request.text) if text else request.tokenized.input_ids,
            stream=request.stream,
            request=request,
            n=max(1, params.n),
            max_tokens=optional(params, "max_tokens"),
            min_tokens=params.min_tokens,
            stop_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            logprobs=optional(params, "logprobs"),
            prompt_logprobs=optional(params, "prompt_logprobs"),
        )

    def check(self, request: Any) -> None:
        positive(request.sampling_params, "top_p", "repetition_penalty", "n")

    def chunk(self, part: Part) -> Any:
        return pb.GenerateResponse(
            chunk=pb.GenerateStreamChunk(
                token_ids=part.ids,
                prompt_tokens=len(part.ask.prompt),
                completion_tokens=part.completion_tokens,
                cached_tokens=part.cached_tokens,
                output_logprobs=self.output_logprobs(part),
                input_logprobs=self.input_logprobs(part),
                index=part.index,
            )
        )

    def complete(self, part: Part) -> Any:
        return pb.GenerateResponse(
            complete=pb.GenerateComplete(
                output_ids=part.ids,
                finish_reason=part.finish,
                prompt_tokens=len(part.ask.prompt),
                completion_tokens=part.completion_tokens,
                cached_tokens=part.cached_tokens,
                output_logprobs=self.output_logprobs(part),
                input_logprobs=self.input_logprobs(part),
                index=part.index,
                spec_accepted_tokens=part.spec_tokens[0],
                spec_draft_tokens=part.spec_tokens[1],
                **matched(part),
            )
        )

    def candidates(self, token: int, count: int) -> list[tuple[int, float]]:
        return logprobs.sampled_first(token, count)

    def abort_ids(self, request: Any) -> Sequence[str]:
        return list(request.request_ids)

    def aborted(self, found: bool) -> Any:
        return pb.AbortResponse()

    def model_info(self, report: Report) -> Any:
        return pb.GetModelInfoResponse(
            model_path=report.model,
            is_generation=report.generates,
            max_context_length=report.context_length,
            vocab_size=report.vocab_size,
            served_model_name=report.model,
            tokenizer_path=report.model,
            model_type="mock",
            architectures=["MockForCausalLM"],
            eos_token_ids=[report.eos],
            pad_token_id=report.pad,
            bos_token_id=report.bos,
            max_req_input_len=report.context_length - 1,
            default_sampling_params_json=report.default_sampling,
        )

    def server_info(self, report: Report) -> Any:
        return pb.GetServerInfoResponse(
            active_requests=report.running,
            uptime_seconds=report.uptime,
            server_type="vllm-grpc",
            data_parallel_size=1,
            block_size=16,
            max_num_seqs=256,
        )

    def start_profile(self, request: Any) -> Any:
        if request.ListFields():
            raise Refused("profiling is configured when the engine is launched")
        return super().start_profile(request)
