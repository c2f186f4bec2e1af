"""The RPCs of a mock engine: scripted tokens, pace and faults, in the messages of any contract."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn

import grpc
import msgspec
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from smg_grpc_proto import tokenspeed_encoder_pb2
from smg_grpc_proto.generated import common_pb2

from smg._version import __version__
from smg.core import clock, shared_memory
from smg.engine_server import bundle
from smg.engine_server.mock import shared, tokenizer
from smg.engine_server.mock.ask import Ask, Refused, Report
from smg.engine_server.mock.contract import Contract
from smg.engine_server.mock.pair import Pair
from smg.engine_server.mock.reply import Reply
from smg.engine_server.mock.script import Fault, Script, plan


class Recorded(msgspec.Struct):
    """One Generate call as the engine saw it.

    ``ask`` is the GenerateRequest, read, with the bytes of tensors that came in files, which ``shared`` names (as
    ShmHandles); ``sent`` are the ids produced, per choice. ``state`` is ``running``, ``done``,
    ``failed`` (by a fault or refused), ``aborted`` (by the Abort RPC) or ``cancelled`` (the client reset the call).
    """

    ask: Ask
    metadata: dict[str, str | bytes]
    state: Literal["running", "done", "failed", "aborted", "cancelled"] = "running"
    sent: list[list[int]] = msgspec.field(default_factory=list)
    shared: list[Any] = msgspec.field(default_factory=list)
    abort: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return self.ask.id

    @property
    def request(self) -> Any:
        """The message itself."""
        return self.ask.request


class _Ended(Exception):
    """A scripted end of the stream with status OK and no Complete."""


class MockServicer:
    """One mock engine's RPCs, in the messages of ``contract``. ``script`` is read at the start of every call."""

    def __init__(
        self,
        contract: Contract,
        script: Script,
        model: str,
        context_length: int,
        default_sampling: str,
        generates: bool,
        pair: Pair,
    ) -> None:
        self.contract = contract
        self.script = script
        self.model = model
        self.context_length = context_length
        self.default_sampling = default_sampling
        self.generates = generates
        self.pair = pair
        self.requests: list[Recorded] = []
        self.aborted: list[str] = []
        self.encoded: list[Any] = []
        self.calls: Counter[str] = Counter()
        self.started = clock.monotonic()

    def handlers(self) -> Sequence[Any]:
        """What serves the RPCs of the contract that there are methods for; grpc answers the others UNIMPLEMENTED."""
        return [self._handler(service) for service in (self.contract.service, *self.contract.more_services)]

    def _handler(self, service: ServiceDescriptor) -> Any:
        methods = {}
        for method in service.methods:
            handler = getattr(self, method.name, None)
            if handler is None:
                continue
            make = (
                grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
            )
            methods[method.name] = make(
                handler,
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=_serialize,
            )
        return grpc.method_handlers_generic_handler(service.full_name, methods)

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
        entry = Recorded(self.contract.ask(request), dict(context.invocation_metadata() or ()))
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
            if entry.state != "done":
                self.pair.withdraw(self.contract, entry.ask)
            await stream.aclose()

    async def _generate(
        self, script: Script, faults: Sequence[Fault], entry: Recorded, context: Any
    ) -> AsyncGenerator[Any, None]:
        await self._strike(faults, None, entry, context)
        await self._require_ready(context)
        if self.pair.role == "encode":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "an encode engine does not generate")
        ask = entry.ask
        try:
            self._check(script, ask)
            entry.shared = shared.take(self.contract.tensors(ask.request), unlink=script.unlinks)
            if self.pair.role == "prefill":
                self.contract.embeddings(ask.request)
        except Refused as error:
            await _refuse(context, str(error))
        if any(fault.after_chunks is not None for fault in faults):
            await context.send_initial_metadata(())
        await self._strike(faults, 0, entry, context)

        if self.pair.role == "prefill":
            ask = msgspec.structs.replace(ask, max_tokens=1, min_tokens=0)
            if not await self.pair.embeddings(self.contract, ask, entry.abort, context):
                return
        elif not await self.pair.receive(self.contract, entry.ask, entry.abort, context):
            return
        replies = [Reply(script, self.contract, ask, index, plan(script, ask, index)) for index in range(ask.n)]
        groups = [[reply] for reply in replies] if self.contract.one_by_one(ask) else [replies]
        steps, offered = 0, None
        delay = script.first_delay
        for group in groups:
            running = list(group)
            while running:
                await _pause(delay, entry)
                delay = script.chunk_delay
                if offered is None:
                    offered = self.pair.offer(self.contract, ask)
                for reply in list(running):
                    if entry.abort.is_set():
                        break
                    messages = [] if reply.done else reply.step()
                    entry.sent = [each.sent for each in replies]
                    for message in messages:
                        yield message
                    steps += 1
                    await self._strike(faults, steps, entry, context)
                    if reply.done:
                        reply.kv_params = await self.pair.hand_over(self.contract, ask, offered, entry.abort)
                        if entry.abort.is_set():
                            break
                        running.remove(reply)
                        yield reply.complete()
                if entry.abort.is_set():
                    for reply in running:
                        yield reply.complete("abort")
                    return

    def _check(self, script: Script, ask: Ask) -> None:
        """Raise Refused for what no engine would take."""
        if not self.generates:
            raise Refused("the model does not generate")
        if not ask.prompt:
            raise Refused("the prompt is empty")
        if len(ask.prompt) >= self.context_length:
            raise Refused(f"the prompt has {len(ask.prompt)} tokens, the context {self.context_length}")
        if max(ask.prompt) >= script.vocab_size:
            raise Refused(f"token id {max(ask.prompt)} is outside the vocabulary of {script.vocab_size}")
        if ask.max_tokens == 0:
            raise Refused("max_tokens must be at least 1")
        if script.strict:
            self.contract.check(ask.request)

    # -- control

    async def Abort(self, request: Any, context: Any) -> Any:
        await self._fault("Abort", context)
        named = self.contract.abort_ids(request)
        self.aborted += named
        found = False
        for entry in self.requests:
            if any(self.contract.hits(each, entry.id) for each in named):
                found = found or entry.state == "running"
                entry.abort.set()
                self.pair.withdraw(self.contract, entry.ask)
        return self.contract.aborted(found)

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        await self._fault("HealthCheck", context)
        await asyncio.sleep(self.script.health_delay)
        return self.contract.health(self.script.healthy and self.ready)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        await self._fault("GetModelInfo", context)
        await self._require_ready(context)
        return self.contract.model_info(self._report())

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        await self._fault("GetServerInfo", context)
        return self.contract.server_info(self._report())

    async def GetLoads(self, request: Any, context: Any) -> Any:
        await self._fault("GetLoads", context)
        try:
            load = self.contract.load(request, self._report())
        except Refused as error:
            await _refuse(context, str(error))
        stamp = datetime.now(UTC).isoformat()
        return self.contract.pb.GetLoadsResponse(timestamp=stamp, version=__version__, dp_rank_count=1, loads=[load])

    async def GetTokenizer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self._fault("GetTokenizer", context)
        script = self.script
        archive = tokenizer.archive(self.context_length) if script.bundle is None else script.bundle
        for chunk in bundle.chunks(archive, script.bundle_chunk or self.contract.bundle_chunk, script.bundle_digest):
            yield chunk

    async def Embed(self, request: Any, context: Any) -> Any:
        await self._fault("Embed", context)
        answer = self.contract.pb.EmbedResponse
        if "embedding_dim" not in answer.DESCRIPTOR.fields_by_name:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this engine does not embed")
        prompt, vector = request.tokenized.input_ids, self.script.embedding
        if isinstance(vector, int):
            vector = [float((sum(prompt) + place) % 7) for place in range(vector)]
        return answer(embedding=vector, embedding_dim=len(vector), prompt_tokens=len(prompt))

    async def Encode(self, request: Any, context: Any) -> Any:
        self.encoded.append(request)
        await self._fault("Encode", context)
        try:
            shared.take(self.contract.tensors(request), unlink=self.script.unlinks)
        except Refused as error:
            await _refuse(context, str(error))
        items, rooms = request.mm_inputs.items, request.items
        accepted = self.pair.role == "encode" and len(items) == len(rooms) == 1 and items[0].HasField("encoder_input")
        if accepted:
            await asyncio.sleep(self.script.first_delay)
            self.pair.encoded(rooms[0].bootstrap_room, items[0].content_hash)
        return tokenspeed_encoder_pb2.EncodeResponse(accepted=accepted)

    async def FlushCache(self, request: Any, context: Any) -> Any:
        await self._fault("FlushCache", context)
        idle = not self.running
        return common_pb2.FlushCacheResponse(success=idle, message="flushed" if idle else "requests are running")

    async def StartProfile(self, request: Any, context: Any) -> Any:
        await self._fault("StartProfile", context)
        try:
            return self.contract.start_profile(request)
        except Refused as error:
            await _refuse(context, str(error))

    async def StopProfile(self, request: Any, context: Any) -> Any:
        await self._fault("StopProfile", context)
        return common_pb2.ProfileResponse(success=True, message="stopped")

    def _report(self) -> Report:
        return Report(
            model=self.model,
            context_length=self.context_length,
            vocab_size=self.script.vocab_size,
            eos=tokenizer.EOS,
            pad=tokenizer.END_OF_TEXT,
            bos=tokenizer.IM_START,
            default_sampling=self.default_sampling,
            generates=self.generates,
            running=self.running,
            waiting=self.script.waiting,
            used_tokens=sum(len(entry.ask.prompt) for entry in self.requests if entry.state == "running"),
            usage=self.script.token_usage,
            uptime=clock.monotonic() - self.started,
            role=self.pair.role,
            bootstrap_port=self.pair.transfers.port,
            connector=self.pair.connector,
            engine_id=self.pair.transfers.engine,
            shm_namespace=self._shm_namespace(),
        )

    def _shm_namespace(self) -> str:
        told = self.script.shm_namespace
        return shared_memory.namespace_id() if told is None else told

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


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def _refuse(context: Any, message: str) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
    raise AssertionError("abort always raises")


async def _pause(seconds: float, entry: Recorded) -> None:
    """Wait, but no longer than until an abort."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(entry.abort.wait(), seconds)
