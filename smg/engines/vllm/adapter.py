"""Adapter of the vLLM contract (spec engine-contract 2 and 3.2): ids only, ``stream`` true on every Generate."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto.generated import common_pb2

from smg.core.backends import EngineRequest
from smg.core.errors import bad_request
from smg.engines.base import Capabilities, EngineInfo, EngineLoad
from smg.engines.labels import default_sampling, flatten
from smg.engines.vllm.decode import VllmDecoder
from smg.engines.vllm.sampling import sampling_params


class VllmAdapter:
    """The ``Adapter`` of ``vllm.grpc.engine.VllmEngine``."""

    name = "vllm"
    service = "vllm.grpc.engine.VllmEngine"
    capabilities = Capabilities(
        constraints=frozenset({"json_schema", "json_object", "regex", "grammar", "structural_tag", "choice"}),
        prompt_logprobs=True,
        loads=True,
    )

    def generate(self, request: EngineRequest) -> bytes:
        """Encode a GenerateRequest.

        Raises:
            GatewayError: ``invalid_value`` or ``unsupported_parameter`` (400), see ``sampling_params``.
        """
        params = sampling_params(request)
        try:
            tokenized = pb.TokenizedInput(input_ids=request.ids)
        except (ValueError, TypeError):
            raise bad_request("token ids must be between 0 and 4294967295", "prompt") from None
        message = pb.GenerateRequest(request_id=request.id, tokenized=tokenized, sampling_params=params, stream=True)
        if request.dp_rank is not None:
            message.data_parallel_rank = request.dp_rank
        return bytes(message.SerializeToString())

    def decoder(self, request: EngineRequest) -> VllmDecoder:
        return VllmDecoder(request)

    def abort(self, ids: Sequence[str]) -> Sequence[bytes]:
        return [bytes(pb.AbortRequest(request_ids=ids).SerializeToString())]

    def info(self, model: bytes, server: bytes) -> EngineInfo:
        """Decode GetModelInfo's and GetServerInfo's answers. Raises ValueError when they are not that."""
        try:
            told = pb.GetModelInfoResponse.FromString(model)
            labels = {**flatten(pb.GetServerInfoResponse.FromString(server)), **flatten(told)}
        except DecodeError as error:
            raise ValueError(f"not vLLM model or server information: {error}") from None
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
        )

    def healthy(self, message: bytes) -> bool:
        try:
            return bool(pb.HealthCheckResponse.FromString(message).healthy)
        except DecodeError:
            return False

    def loads_request(self) -> bytes:
        return bytes(pb.GetLoadsRequest(include=["core"]).SerializeToString())

    def loads(self, message: bytes) -> list[EngineLoad]:
        """Decode GetLoads' answer, one record per data-parallel rank. Raises ValueError when it is not that."""
        try:
            answer = pb.GetLoadsResponse.FromString(message)
        except DecodeError as error:
            raise ValueError(f"not a GetLoadsResponse: {error}") from None
        return [
            EngineLoad(
                dp_rank=load.dp_rank,
                running=load.num_running_reqs,
                waiting=load.num_waiting_reqs,
                used_tokens=load.num_used_tokens,
                max_tokens=load.max_total_num_tokens,
                usage=load.token_usage,
                queued_tokens=load.num_waiting_uncached_tokens,
                throughput=load.gen_throughput,
                cache_hit_rate=load.cache_hit_rate,
                utilization=load.utilization,
                max_running=load.max_running_requests,
            )
            for load in answer.loads
        ]

    def tokenizer_chunk(self, message: bytes) -> tuple[bytes, str]:
        """Decode one GetTokenizerChunk. Raises ValueError when it is not one."""
        try:
            chunk = common_pb2.GetTokenizerChunk.FromString(message)
        except DecodeError as error:
            raise ValueError(f"not a GetTokenizerChunk: {error}") from None
        return bytes(chunk.data), str(chunk.sha256)
