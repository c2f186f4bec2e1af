"""The vLLM contract in front of the scheduler."""

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2

from smg._version import __version__
from smg.core import clock
from smg.engine_server import bundle
from smg.engine_server.llama import constraints, gguf_metadata, tokenizer_bundle
from smg.engine_server.llama.call import Call, EngineFailure
from smg.engine_server.llama.embedder import Embedder
from smg.engine_server.llama.guidance import ConstraintError, Guide, Matcher
from smg.engine_server.llama.kv_blocks import BLOCK_SIZE
from smg.engine_server.llama.kv_feed import DataLoss, Feed, OutOfRange
from smg.engine_server.llama.model import DecodeError, Model
from smg.engine_server.llama.request import Refused, jobs_of, prompt_of, refuse_unsupported
from smg.engine_server.llama.scheduler import Scheduler

# Jobs that may wait for a slot before further calls are refused: minutes of work, memory is no concern.
MAX_WAITING = 1024

# Tells a gateway that the constraint is to blame, so that it neither retries nor blames the worker.
_CONSTRAINT_TRAILER = (("smg-constraint-failed", "engine"),)
_MAX_FLUSH_SECS = 3600.0

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


class LlamaServicer(vllm_engine_pb2_grpc.VllmEngineServicer):  # type: ignore[misc]
    """RPCs of one embedded engine; ``name`` is the served model name."""

    def __init__(self, model: Model, scheduler: Scheduler, embedder: Embedder, feed: Feed, name: str) -> None:
        self._model = model
        self._scheduler = scheduler
        self._embedder = embedder
        self._feed = feed
        self._name = name
        self._calls: set[Call] = set()
        self._started = clock.monotonic()
        self._received = 0.0
        self._archive: asyncio.Future[bytes] | None = None
        self._guide: asyncio.Future[Guide] | None = None
        self._metadata = gguf_metadata.read(model.path)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self._received = clock.wall()
        call = Call(request.request_id, request.stream)
        self._calls.add(call)
        try:
            refuse_unsupported(request)
            matcher = await self._matcher(request.sampling_params)
            call.jobs = jobs_of(request, self._model, call.sink, matcher)
            if self._scheduler.load().waiting >= MAX_WAITING:
                raise Refused(f"{MAX_WAITING} requests are waiting already", grpc.StatusCode.RESOURCE_EXHAUSTED)
            self._scheduler.submit(call.jobs)
            async for message in call.messages():
                yield message
        except Refused as error:
            await context.abort(error.status, error.message)
        except ConstraintError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error), _CONSTRAINT_TRAILER)
        except EngineFailure as error:
            if error.constraint:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error), _CONSTRAINT_TRAILER)
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        finally:
            # However the call ended, nothing goes on decoding for it.
            self._calls.discard(call)
            self._scheduler.cancel(call.jobs)

    async def _matcher(self, sampling: Any) -> Matcher | None:
        if not constraints.wanted(sampling):
            return None
        if self._guide is None:
            self._guide = asyncio.ensure_future(asyncio.to_thread(Guide, self._model))
        # Shielded: one client that gives up must not take it from the others.
        guide = await asyncio.shield(self._guide)
        return await asyncio.to_thread(constraints.compile, sampling, guide)

    async def Embed(self, request: Any, context: Any) -> Any:
        self._received = clock.wall()
        try:
            prompt = prompt_of(request, self._model)
            vector = await asyncio.to_thread(self._embedder.embed, prompt)
        except Refused as error:
            await context.abort(error.status, error.message)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        return pb.EmbedResponse(embedding=vector.tolist(), prompt_tokens=len(prompt), embedding_dim=vector.size)

    async def FlushCache(self, request: Any, context: Any) -> Any:
        if not 0 <= request.timeout_s <= _MAX_FLUSH_SECS or math.isnan(request.timeout_s):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"timeout_s must be between 0 and {_MAX_FLUSH_SECS:g}"
            )
        flushed = await asyncio.wrap_future(self._scheduler.flush(request.timeout_s))
        message = "the cache is empty" if flushed else "requests are running"
        return common_pb2.FlushCacheResponse(success=flushed, message=message)

    async def StartProfile(self, request: Any, context: Any) -> Any:
        if request.ListFields():
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "profiling options are set when an engine starts, not per request"
            )
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this engine has no profiler")

    async def StopProfile(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this engine has no profiler")

    async def SubscribeKvEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:
        # At once, so that a subscriber knows it is heard before anything happens.
        await context.send_initial_metadata(())
        try:
            async for batch in self._feed.subscribe(request.start_sequence_number):
                yield batch
        except OutOfRange as error:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, str(error))
        except DataLoss as error:
            await context.abort(grpc.StatusCode.DATA_LOSS, str(error))

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
            block_size=BLOCK_SIZE,
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
