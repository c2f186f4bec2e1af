"""The vLLM contract: delta counts, the Complete repeats the last delta, ends are kept (spec 2.1, 3.2)."""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.mock import logprobs, tokenizer
from smg.engine_server.mock.ask import Ask, Part, Refused, Report
from smg.engine_server.mock.contract import Contract, matched, optional, positive
from smg.engine_server.mock.transfer import Meeting

_KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


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

    def meeting(self, request: Any) -> Meeting | None:
        """By the request's id where the parameters were relayed, by its transfer's id where they were made up."""
        if not request.HasField("kv_transfer_params_json"):
            return None
        told = json.loads(request.kv_transfer_params_json)
        key = told.get("transfer_id") or told.get("remote_request_id") or request.request_id
        if told["do_remote_decode"]:
            return Meeting("", 0, key, waits=False)
        if "remote_bootstrap_addr" in told:
            place = urlsplit(told["remote_bootstrap_addr"])
            return Meeting(place.hostname or "", place.port or 0, key, told["remote_engine_id"])
        return Meeting(told["remote_host"], told["remote_port"], key, told["remote_engine_id"])

    def tensors(self, request: Any) -> Iterable[Any]:
        inputs = request.mm_inputs
        return (inputs.pixel_values, *inputs.model_specific_tensors.values())

    def kv_params(self, request: Any, host: str, port: int, engine: str) -> str:
        # Spaces and order that no other JSON writer would choose: it has to come back byte for byte.
        return (
            f'{{"remote_block_ids" :[ 3,1, 2],  "do_remote_prefill": true,"do_remote_decode":false, '
            f'"remote_engine_id":"{engine}","remote_host":"{host}","remote_port":{port},'
            f'"remote_request_id":{json.dumps(request.request_id)}}}'
        )

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
                kv_transfer_params_json=part.kv_params or None,
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
            # It takes media for whatever model it is said to be.
            supports_vision=True,
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
            kv_connector=report.connector,
            kv_role=_KV_ROLES.get(report.role, "") if report.connector else "",
            kv_engine_id=report.engine_id,
            shm_namespace_id=report.shm_namespace,
        )

    def start_profile(self, request: Any) -> Any:
        if request.ListFields():
            raise Refused("profiling is configured when the engine is launched")
        return super().start_profile(request)
