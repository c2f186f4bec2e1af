"""The TensorRT-LLM contract: max_tokens required, ends cut, the Complete has all ids (spec 2.1, 3.4)."""

from collections.abc import Sequence
from typing import Any

from smg_grpc_proto import trtllm_service_pb2 as pb

from smg.engine_server.mock import logprobs, tokenizer
from smg.engine_server.mock.ask import Ask, Part, Refused, Report
from smg.engine_server.mock.contract import Contract, matched, optional, positive


class Trtllm(Contract):
    """Mock of ``trtllm.TrtllmService``."""

    pb = pb
    service = pb.DESCRIPTOR.services_by_name["TrtllmService"]
    name = "trtllm"
    complete_ids = "all"

    def ask(self, request: Any) -> Ask:
        config = request.sampling_config
        return Ask(
            id=request.request_id,
            prompt=request.tokenized.input_token_ids,
            stream=request.streaming,
            request=request,
            n=max(1, config.num_return_sequences),
            max_tokens=request.max_tokens,
            min_tokens=config.min_tokens,
            stop_ids=frozenset(request.stop_token_ids),
            ignore_eos=request.ignore_eos,
            keep_stop=request.include_stop_token_in_output,
            logprobs=optional(request.output_config, "logprobs"),
            prompt_logprobs=optional(request.output_config, "prompt_logprobs"),
        )

    def check(self, request: Any) -> None:
        config = request.sampling_config
        positive(config, "num_return_sequences", "top_p", "repetition_penalty")
        if config.beam_width != 1:
            raise Refused("beam_width must be 1")
        if request.embedding_bias and len(request.embedding_bias) != tokenizer.VOCAB_SIZE:
            raise Refused("embedding_bias must cover the vocabulary")

    def chunk(self, part: Part) -> Any:
        chunk = pb.GenerateStreamChunk(
            token_ids=part.ids,
            sequence_index=part.index,
            prompt_tokens=len(part.ask.prompt),
            completion_tokens=part.completion_tokens,
            cached_tokens=part.cached_tokens,
            logprobs=_rows(part.ids, part.ask.logprobs),
        )
        return pb.GenerateResponse(request_id=part.ask.id, chunk=chunk)

    def complete(self, part: Part) -> Any:
        complete = pb.GenerateComplete(
            output_token_ids=part.ids,
            sequence_index=part.index,
            finish_reason="stop_word" if part.finish == "stop" and part.matched is not None else part.finish,
            prompt_tokens=len(part.ask.prompt),
            completion_tokens=part.completion_tokens,
            cached_tokens=part.cached_tokens,
            logprobs=_rows(part.ids, part.ask.logprobs),
            prompt_logprobs=_rows(part.ask.prompt, part.ask.prompt_logprobs),
            spec_accepted_tokens=part.spec_tokens[0],
            spec_draft_tokens=part.spec_tokens[1],
            **matched(part),
        )
        return pb.GenerateResponse(request_id=part.ask.id, complete=complete)

    def abort_ids(self, request: Any) -> Sequence[str]:
        return [request.request_id]

    def health(self, healthy: bool) -> Any:
        return pb.HealthCheckResponse(status="OK" if healthy else "scripted as unhealthy")

    def model_info(self, report: Report) -> Any:
        return pb.GetModelInfoResponse(
            model_id=report.model,
            max_input_len=report.context_length - 1,
            max_seq_len=report.context_length,
            max_batch_size=256,
            vocab_size=report.vocab_size,
            supported_features=["lora", "guided_decoding"],
        )

    def server_info(self, report: Report) -> Any:
        return pb.GetServerInfoResponse(version="1.2.0", backend="pytorch", tensor_parallel_size=2, world_size=2)


def _rows(ids: Sequence[int], count: int | None) -> list[Any]:
    if count is None:
        return []
    return [
        pb.TokenLogprob(
            token_id=token,
            logprob=logprobs.SAMPLED_LOGPROB,
            top_logprobs=[
                pb.TopLogprob(token_id=each, logprob=value) for each, value in logprobs.best_first(token, count)
            ],
        )
        for token in ids
    ]
