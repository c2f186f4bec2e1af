"""The vLLM contract in front of the scheduler."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc

from smg._version import __version__
from smg.core import clock
from smg.engine_server import bundle
from smg.engine_server.llama import gguf_metadata, tokenizer_bundle
from smg.engine_server.llama.call import Call, EngineFailure
from smg.engine_server.llama.model import Model
from smg.engine_server.llama.request import Refused, jobs_of
from smg.engine_server.llama.scheduler import Scheduler

# Jobs that may wait for a slot before further calls are refused: minutes of work, memory is no concern.
MAX_WAITING = 1024

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


class LlamaServicer(vllm_engine_pb2_grpc.VllmEngineServicer):  # type: ignore[misc]
    """RPCs of one embedded engine; ``name`` is the served model name."""

    def __init__(self, model: Model, scheduler: Scheduler, name: str) -> None:
        self._model = model
        self._scheduler = scheduler
        self._name = name
        self._calls: set[Call] = set()
        self._started = clock.monotonic()
        self._received = 0.0
        self._archive: asyncio.Future[bytes] | None = None
        self._metadata = gguf_metadata.read(model.path)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._received = clock.wall()
        call = Call(request.request_id, request.stream)
        try:
            call.jobs = jobs_of(request, self._model, call.sink)
        except Refused as error:
            await context.abort(error.status, error.message)
        if self._scheduler.load().waiting >= MAX_WAITING:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WAITING} requests are waiting already")
        self._calls.add(call)
        try:
            self._scheduler.submit(call.jobs)
            async for message in call.messages():
                yield message
        except EngineFailure as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        finally:
            # However the call ended, nothing goes on decoding for it.
            self._calls.discard(call)
            self._scheduler.cancel(call.jobs)

    async def Abort(self, request: Any, context: Any) -> Any:
        wanted = set(request.request_ids)
        for call in self._calls:
            if call.id in wanted:
                self._scheduler.cancel(call.jobs)
        return pb.AbortResponse()

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        healthy = self._scheduler.is_alive()
        return pb.HealthCheckResponse(healthy=healthy, message="OK" if healthy else "the scheduler has ended")

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        model = self._model
        arch = str(self._metadata["general.architecture"])
        return pb.GetModelInfoResponse(
            model_path=str(model.path),
            is_generation=True,
            max_context_length=model.context_length,
            vocab_size=model.vocab_size,
            served_model_name=self._name,
            tokenizer_path=str(model.path),
            model_type=arch,
            architectures=[_ARCHITECTURES.get(arch, arch)],
            eos_token_ids=model.end_ids,
            pad_token_id=model.pad_id,
            bos_token_id=model.bos_id,
            max_req_input_len=model.context_length - 1,
        )

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        return pb.GetServerInfoResponse(
            active_requests=len(self._calls),
            last_receive_timestamp=self._received,
            uptime_seconds=clock.monotonic() - self._started,
            server_type="vllm-grpc",
            data_parallel_size=1,
            kv_cache_dtype="float16",
            block_size=1,
            max_num_seqs=self._model.slots,
        )

    async def GetLoads(self, request: Any, context: Any) -> Any:
        load = self._scheduler.load()
        usage = load.used_tokens / load.max_tokens
        report = pb.SchedulerLoad(
            num_running_reqs=load.running,
            num_waiting_reqs=load.waiting,
            num_total_reqs=load.running + load.waiting,
            num_used_tokens=load.used_tokens,
            max_total_num_tokens=load.max_tokens,
            token_usage=usage,
            gen_throughput=load.rate,
            cache_hit_rate=load.hit_rate,
            utilization=load.running / self._model.slots,
            max_running_requests=self._model.slots,
            num_waiting_uncached_tokens=load.waiting_tokens,
        )
        asked_elsewhere = request.HasField("dp_rank") and request.dp_rank != 0
        return pb.GetLoadsResponse(
            timestamp=datetime.now(UTC).isoformat(),
            version=__version__,
            dp_rank_count=1,
            loads=[] if asked_elsewhere else [report],
        )

    async def GetTokenizer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if self._archive is None:
            build = asyncio.to_thread(tokenizer_bundle.build, self._metadata, self._model.end_ids)
            self._archive = asyncio.ensure_future(build)
        try:
            # Shielded: one client that gives up must not take it from the others.
            archive = await asyncio.shield(self._archive)
        except tokenizer_bundle.UnknownTokenizer as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        for part in bundle.chunks(archive):
            yield part
