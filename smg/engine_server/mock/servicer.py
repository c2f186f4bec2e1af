"""The vLLM contract as a mock engine answers it: scripted tokens, quirks and faults."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn

import grpc
import msgspec
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc

from smg._version import __version__
from smg.core import clock
from smg.engine_server import bundle
from smg.engine_server.mock import tokenizer
from smg.engine_server.mock.messages import Reply
from smg.engine_server.mock.script import Fault, Script, plan


class Recorded(msgspec.Struct):
    """One Generate call as the engine saw it.

    ``request`` is the GenerateRequest; ``sent`` are the ids produced, per choice. ``state`` is ``running``, ``done``,
    ``failed`` (by a fault or refused), ``aborted`` (by the Abort RPC) or ``cancelled`` (the client reset the call).
    """

    request: Any
    metadata: dict[str, str | bytes]
    state: Literal["running", "done", "failed", "aborted", "cancelled"] = "running"
    sent: list[list[int]] = msgspec.field(default_factory=list)
    abort: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return str(self.request.request_id)


class _Ended(Exception):
    """A scripted end of the stream with status OK and no Complete."""


class MockServicer(vllm_engine_pb2_grpc.VllmEngineServicer):  # type: ignore[misc]
    """One mock engine's RPCs. ``script`` is read at the start of every call."""

    def __init__(self, script: Script, model: str, context_length: int, default_sampling: str) -> None:
        self.script = script
        self.model = model
        self.context_length = context_length
        self.default_sampling = default_sampling
        self.requests: list[Recorded] = []
        self.aborted: list[str] = []
        self.calls: Counter[str] = Counter()
        self.started = clock.monotonic()

    def reset(self, script: Script) -> None:
        """Take a new script; faults limited to the first calls count from here."""
        self.script = script
        self.calls.clear()

    @property
    def running(self) -> int:
        return sum(entry.state == "running" for entry in self.requests)

    @property
    def ready(self) -> bool:
        """Whether the start-up delay is over."""
        return clock.monotonic() - self.started >= self.script.startup_delay

    # -- Generate

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        script, faults = self.script, self._faults("Generate")
        entry = Recorded(request, dict(context.invocation_metadata() or ()))
        self.requests.append(entry)
        stream = self._generate(script, faults, entry, context)
        try:
            async for message in stream:
                yield message
            entry.state = "aborted" if entry.abort.is_set() else "done"
        except (asyncio.CancelledError, GeneratorExit):
            # A reset that comes while a message is being written closes this generator, without a cancellation.
            entry.state = "cancelled"
            raise
        except _Ended:
            entry.state = "failed"
        finally:
            if entry.state == "running":
                entry.state = "failed"
            await stream.aclose()

    async def _generate(
        self, script: Script, faults: Sequence[Fault], entry: Recorded, context: Any
    ) -> AsyncGenerator[Any, None]:
        request = entry.request
        await self._strike(faults, None, entry, context)
        await self._require_ready(context)
        prompt = await self._prompt(request, context)
        await self._check(script, request, prompt, context)
        if any(fault.after_chunks is not None for fault in faults):
            await context.send_initial_metadata(())
        await self._strike(faults, 0, entry, context)

        count = max(1, request.sampling_params.n)
        replies = [
            Reply(script, request, prompt, index, plan(script, request, prompt, index)) for index in range(count)
        ]
        open_replies, steps = list(replies), 0
        delay = script.first_delay
        while open_replies:
            await _pause(delay, entry)
            delay = script.chunk_delay
            for reply in list(open_replies):
                if entry.abort.is_set():
                    break
                messages = [] if reply.done else reply.step()
                entry.sent = [each.sent for each in replies]
                for message in messages:
                    yield message
                steps += 1
                await self._strike(faults, steps, entry, context)
                if reply.done:
                    open_replies.remove(reply)
                    yield reply.complete()
            if entry.abort.is_set():
                for reply in open_replies:
                    yield reply.complete("abort")
                return

    async def _prompt(self, request: Any, context: Any) -> Sequence[int]:
        if request.WhichOneof("input") == "text":
            return tokenizer.encode_text(request.text)
        if not request.tokenized.input_ids:
            await _refuse(context, "the prompt is empty")
        return list(request.tokenized.input_ids)

    async def _check(self, script: Script, request: Any, prompt: Sequence[int], context: Any) -> None:
        params = request.sampling_params
        if len(prompt) >= self.context_length:
            await _refuse(context, f"the prompt has {len(prompt)} tokens, the context {self.context_length}")
        if max(prompt) >= tokenizer.VOCAB_SIZE:
            await _refuse(context, f"token id {max(prompt)} is outside the vocabulary of {tokenizer.VOCAB_SIZE}")
        if params.HasField("max_tokens") and params.max_tokens == 0:
            await _refuse(context, "max_tokens must be at least 1")
        if script.strict:
            for field in ("top_p", "repetition_penalty", "n"):
                if not getattr(params, field):
                    await _refuse(context, f"{field} must be greater than 0")

    # -- control

    async def Abort(self, request: Any, context: Any) -> Any:
        await self._fault("Abort", context)
        wanted = set(request.request_ids)
        self.aborted += request.request_ids
        for entry in self.requests:
            if entry.state == "running" and entry.id in wanted:
                entry.abort.set()
        return pb.AbortResponse()

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        await self._fault("HealthCheck", context)
        healthy = self.script.healthy and self.ready
        return pb.HealthCheckResponse(healthy=healthy, message="OK" if healthy else "scripted as unhealthy")

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        await self._fault("GetModelInfo", context)
        await self._require_ready(context)
        return pb.GetModelInfoResponse(
            model_path=self.model,
            is_generation=True,
            max_context_length=self.context_length,
            vocab_size=tokenizer.VOCAB_SIZE,
            served_model_name=self.model,
            tokenizer_path=self.model,
            model_type="mock",
            architectures=["MockForCausalLM"],
            eos_token_ids=[tokenizer.EOS],
            pad_token_id=tokenizer.END_OF_TEXT,
            bos_token_id=tokenizer.IM_START,
            max_req_input_len=self.context_length - 1,
            default_sampling_params_json=self.default_sampling,
        )

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        await self._fault("GetServerInfo", context)
        return pb.GetServerInfoResponse(
            active_requests=self.running,
            uptime_seconds=clock.monotonic() - self.started,
            server_type="vllm-grpc",
            data_parallel_size=1,
            block_size=16,
            max_num_seqs=256,
        )

    async def GetLoads(self, request: Any, context: Any) -> Any:
        await self._fault("GetLoads", context)
        used = sum(len(entry.request.tokenized.input_ids) for entry in self.requests if entry.state == "running")
        load = pb.SchedulerLoad(
            num_running_reqs=self.running,
            num_waiting_reqs=self.script.waiting,
            num_total_reqs=self.running + self.script.waiting,
            num_used_tokens=used,
            max_total_num_tokens=self.context_length,
            token_usage=self.script.token_usage,
            max_running_requests=256,
        )
        stamp = datetime.now(UTC).isoformat()
        return pb.GetLoadsResponse(timestamp=stamp, version=__version__, dp_rank_count=1, loads=[load])

    async def GetTokenizer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self._fault("GetTokenizer", context)
        script = self.script
        archive = tokenizer.archive(self.context_length) if script.bundle is None else script.bundle
        for chunk in bundle.chunks(archive, script.bundle_chunk, script.bundle_digest):
            yield chunk

    # -- faults

    def _faults(self, rpc: str) -> list[Fault]:
        """Count one call of ``rpc`` and return the faults that apply to it."""
        self.calls[rpc] += 1
        count = self.calls[rpc]
        return [
            fault for fault in self.script.faults if fault.rpc == rpc and (fault.first is None or count <= fault.first)
        ]

    async def _fault(self, rpc: str, context: Any) -> None:
        await self._strike(self._faults(rpc), None, None, context)

    async def _strike(self, faults: Sequence[Fault], chunks: int | None, entry: Recorded | None, context: Any) -> None:
        """Apply the fault due after ``chunks`` messages, if there is one."""
        for fault in faults:
            if fault.after_chunks != chunks:
                continue
            if fault.kind == "status":
                await context.abort(fault.status, fault.message, fault.trailers)
            if fault.kind == "eof":
                raise _Ended
            # Only Abort or the client's cancel ends a stall.
            await (entry.abort if entry is not None else asyncio.Event()).wait()

    async def _require_ready(self, context: Any) -> None:
        if not self.ready:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the model is still loading")


async def _refuse(context: Any, message: str) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
    raise AssertionError("abort always raises")


async def _pause(seconds: float, entry: Recorded) -> None:
    """Wait, but no longer than until an abort."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(entry.abort.wait(), seconds)
