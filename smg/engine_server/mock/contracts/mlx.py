"""The MLX contract: one choice, no constraints, a Complete without ids when streaming (spec 2.1, 3.5)."""

from collections.abc import Sequence
from typing import Any

from smg_grpc_proto import mlx_engine_pb2 as pb

from smg.engine_server.mock import tokenizer
from smg.engine_server.mock.ask import Ask, Part, Report
from smg.engine_server.mock.contract import Contract, optional, positive


class Mlx(Contract):
    """Mock of ``mlx.grpc.engine.MlxEngine``."""

    pb = pb
    service = pb.DESCRIPTOR.services_by_name["MlxEngine"]
    name = "mlx"
    complete_ids = "none"
    bundle_chunk = 512 << 10

    def ask(self, request: Any) -> Ask:
        params = request.sampling_params
        text = request.WhichOneof("input") == "text"
        # Zero is off here.
        wanted = optional(params, "logprobs") or None
        return Ask(
            id=request.request_id,
            prompt=tokenizer.encode_text(request.text) if text else request.tokenized.input_ids,
            stream=request.stream,
            request=request,
            max_tokens=optional(params, "max_tokens"),
            stop_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            logprobs=wanted,
        )

    def check(self, request: Any) -> None:
        positive(request.sampling_params, "top_p", "repetition_penalty")

    def chunk(self, part: Part) -> Any:
        return pb.GenerateResponse(
            chunk=pb.GenerateStreamChunk(
                token_ids=part.ids,
                prompt_tokens=len(part.ask.prompt),
                completion_tokens=part.completion_tokens,
                cached_tokens=part.cached_tokens,
                output_logprobs=self.output_logprobs(part),
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
                index=part.index,
                matched_stop_token_id=part.matched if isinstance(part.matched, int) else None,
            )
        )

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
            model_type="mock",
            architectures=["MockForCausalLM"],
            eos_token_ids=[report.eos],
            pad_token_id=report.pad,
            bos_token_id=report.bos,
            max_req_input_len=report.context_length - 1,
        )

    def server_info(self, report: Report) -> Any:
        return pb.GetServerInfoResponse(
            server_type="mlx-grpc", active_requests=report.running, uptime_seconds=report.uptime
        )
