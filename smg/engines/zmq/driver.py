"""ZmqDriver: one engine over ZeroMQ as a tokens backend, in one process of the gateway (spec engine-contract 6)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

import msgspec
import zmq

from smg.core import clock
from smg.core.backends import EngineRequest
from smg.core.background import background
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.admin import AdminResult
from smg.engines.base import EngineInfo, EngineLoad
from smg.engines.decoding import check_ids
from smg.engines.source import cancelled_error
from smg.engines.zmq import frames as parts
from smg.engines.zmq.address import parse
from smg.engines.zmq.frames import Told, UtilityOutput, Wire
from smg.engines.zmq.handshake import Handshake, identity, is_tokenspeed
from smg.engines.zmq.port import Port
from smg.engines.zmq.relay import Relay
from smg.engines.zmq.source import ZmqSource
from smg.engines.zmq.tokenspeed import TokenSpeedWire
from smg.engines.zmq.wire import UTILITY, VllmWire, utility

log = logging.getLogger("smg.engines")

WIRES: Mapping[str, Wire] = {wire.runtime: wire for wire in (VllmWire(), TokenSpeedWire())}
# How long a process waits for the engine to connect to it; it does so within a moment of being ready.
CONNECT_SECS = 2.0
_LOOK_SECS = 0.02
UTILITY_SECS = 45.0
# What the engine's facts are called as labels.
_LABELS = {
    "max_model_len": "max_model_len",
    "num_gpu_blocks": "num_gpu_blocks",
    "block_size": "block_size",
    "dtype": "dtype",
    "multimodal_encoder_dtype": "multimodal_encoder_dtype",
    "vllm_version": "version",
    "world_size": "world_size",
    "data_parallel_size": "dp_size",
    "max_num_seqs": "max_running_requests",
}


class ZmqDriver:
    """The ``TokensBackend`` of the engine at ``url``. Use on one event loop only, and make it there.

    ``runtime`` is its contract as far as it is known; empty means vLLM until the engine has said what it is.
    ``process`` is this process's number among ``processes`` of the gateway; number 0 (control) greets the engine.
    ``labels`` name the model, which the engine does not: ``served_model_name``, ``model_id`` or ``model_path``.
    ``on_load`` is told the load that comes with the engine's steps.

    Raises:
        ValueError: ``url`` is none, its sockets cannot be bound, or there is no such contract over ZeroMQ.
    """

    kind: Literal["tokens"] = "tokens"

    def __init__(
        self,
        url: str,
        process: int,
        processes: int = 1,
        labels: Mapping[str, str] | None = None,
        on_load: Callable[[EngineLoad], None] | None = None,
        runtime: str = "",
    ) -> None:
        self.url = url
        if runtime and runtime not in WIRES:
            raise ValueError(f"{url}: there is no {runtime} over ZeroMQ")
        self._wire = WIRES[runtime or VllmWire.runtime]
        self.last_heard = clock.monotonic()
        self._labels = labels or {}
        self._process = process
        self._on_load = on_load
        self._dead = False
        self._retired = False
        self._turn = -1
        self._sources: dict[str, tuple[ZmqSource, int]] = {}  # by the choice's id on the engine
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._address = parse(url)
        self._processes = processes
        self._relay: Relay | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        try:
            self._handshake = Handshake(self._context, self._address, processes) if process == 0 else None
            self._port = Port(self._context, self._address, process, self._take, self._greeted, self._gone)
        except (OSError, zmq.ZMQError) as error:
            raise ValueError(f"{url}: {error}") from None

    @property
    def runtime(self) -> str:
        """Name of the contract."""
        return self._wire.runtime

    @property
    def capabilities(self) -> frozenset[str]:
        """What the contract offers over ZeroMQ."""
        return self._wire.capabilities

    # -- generations

    async def open(self, ctx: RequestContext, request: EngineRequest) -> ZmqSource:
        """Dispatch ``request``. Raises GatewayError as ``Wire.add``, or when the engine is not connected."""
        if ctx.cancel.reason is not None:
            raise cancelled_error(ctx.cancel.reason)
        if ctx.remaining() == 0.0:
            raise cancelled_error("deadline")
        if request.media is None:
            messages = self._messages(request)
        else:
            # Tensors may have to be put together or rounded.
            messages = await background(self._messages, request)
            if ctx.cancel.reason is not None:
                raise cancelled_error(ctx.cancel.reason)
        if not self._sources:
            self.last_heard = clock.monotonic()
        source = ZmqSource(self, ctx, request, self._rank(request))
        for choice in range(request.n):
            self._sources[parts.child(request, choice)] = (source, choice)
        try:
            for message in messages:
                await self._send(source.rank, parts.ADD, *message)
        except BaseException:
            await source.cancel("stop")
            raise
        return source

    def relabel(self, labels: Mapping[str, str], runtime: str = "") -> None:
        """The worker's labels and contract as they are now: an engine that has restarted may be another one."""
        self._labels = labels
        self._wire = WIRES.get(runtime, self._wire)

    def abort(self, source: ZmqSource, choices: list[int]) -> None:
        """See ``source.Owner``."""
        request = source.request
        try:
            self._port.send(identity(source.rank), [parts.ABORT, parts.abort(request, choices)])
        except GatewayError as error:
            log.debug("abort not delivered", extra={"worker": self.url, "request": request.id, "error": error.detail})

    def forget(self, source: ZmqSource) -> None:
        """See ``source.Owner``."""
        for choice in range(source.request.n):
            self._sources.pop(parts.child(source.request, choice), None)
        if self._retired and not self._sources:
            self._port.close()

    # -- control

    async def info(self) -> EngineInfo:
        """What the engine told when it was ready, and the configured model.

        Raises:
            GatewayError: it has not connected yet, or no model is configured (``worker_failed``).
        """
        facts = self._handshake.facts if self._handshake is not None else None
        if facts is None:
            raise GatewayError("worker_failed", "the engine has not connected yet", status=503, worker_fault=True)
        self._known(facts)
        path = self._labels.get("model_path", "")
        name = self._labels.get("served_model_name") or self._labels.get("model_id") or path.rstrip("/").split("/")[-1]
        if not name:
            message = "an engine core does not tell its model: it has to be named (--model-path)"
            raise GatewayError("worker_failed", message, worker_fault=True)
        length = facts.get("max_model_len")
        labels = {label: str(facts[key]) for key, label in _LABELS.items() if facts.get(key)}
        if self.runtime == VllmWire.runtime and "dtype" in labels:
            # What reaches an engine core is no more cast there.
            labels["multimodal_encoder_dtype"] = labels["dtype"]
        return EngineInfo(
            model_id=name,
            model_path=path,
            tokenizer_path=path,
            context_length=length if isinstance(length, int) and length > 0 else 0,
            labels=labels,
            lacks=frozenset() if _ranks(labels) > 1 else frozenset({"dp_rank"}),
        )

    async def health(self, timeout: float, *, thorough: bool = False) -> bool:
        """Whether the engine is connected. Raises GatewayError when it is not."""
        for rank in self._handshake.ranks or (0,) if self._handshake is not None else (0,):
            self._port.send(identity(rank), [parts.ABORT, parts.NOBODY])
        self._share()
        return not self._dead

    async def loads(self) -> list[EngineLoad]:
        """Not asked for: the engine tells with every step. Raises GatewayError ``not_implemented``."""
        raise GatewayError("not_implemented", "an engine core tells its load by itself")

    async def tokenizer_bundle(self) -> AsyncIterator[tuple[bytes, str]]:
        """There is none. Raises GatewayError ``not_implemented``."""
        raise GatewayError("not_implemented", "an engine core has no tokenizer")
        yield

    async def flush_cache(self, timeout_secs: float = 0.0) -> AdminResult:
        """Empty the prefix cache.

        Raises:
            GatewayError: ``not_implemented`` (501) where there is no such call, or the engine fails, or does not answer
                in time.
        """
        if "flush_cache" not in self.capabilities:
            raise GatewayError("not_implemented", "the engine offers no flushing of its cache over ZeroMQ")
        result = await self._call("reset_prefix_cache", timeout_secs + UTILITY_SECS)
        return AdminResult(result is not False, "flushed" if result is not False else "requests are running")

    def retire(self) -> None:
        """Close as soon as nothing runs any more."""
        self._retired = True
        if not self._sources:
            self._port.close()

    async def close(self) -> None:
        """Abort what runs and close the sockets. Idempotent."""
        for source, _ in list(self._sources.values()):
            await source.cancel("shutdown")
        self._unshare()
        self._port.close()
        if self._handshake is not None:
            self._handshake.close()
            self._handshake = None

    # -- messages

    def _messages(self, request: EngineRequest) -> list[list[Any]]:
        """What adds each choice of ``request``."""
        told = Told(int(self._labels.get("max_model_len", "0")), self._labels.get("dtype", ""))
        return [self._wire.add(request, choice, self._process, told) for choice in range(request.n)]

    def _rank(self, request: EngineRequest) -> int:
        """The rank to ask: the one it is pinned to, or each in turn. An engine core has no ranks of its own here.

        Raises GatewayError (400) for a rank that there is not.
        """
        size = _ranks(self._labels) if self.runtime == TokenSpeedWire.runtime else 1
        if size <= 1:
            return 0
        if request.dp_rank is not None:
            if not 0 <= request.dp_rank < size:
                raise GatewayError("invalid_value", f"the engine has ranks 0 to {size - 1}", param="data_parallel_rank")
            return request.dp_rank
        self._turn = (self._turn + 1) % size
        return self._turn

    async def _send(self, rank: int, kind: bytes, *frames: Any) -> None:
        """Send a message to a rank, with a moment's patience for an engine that is just connecting to this process."""
        until = clock.monotonic() + CONNECT_SECS
        while True:
            try:
                self._port.send(identity(rank), [kind, *frames])
                return
            except GatewayError:
                if clock.monotonic() > until:
                    raise
            await asyncio.sleep(_LOOK_SECS)

    async def _call(self, method: str, timeout: float) -> Any:
        number = max(self._calls, default=0) + 1
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._send(0, UTILITY, utility(self._process, number, method))
                return await answer
        except TimeoutError:
            message = "the engine did not answer in time"
            raise GatewayError("upstream_timeout", message, detail=method, worker_fault=True) from None
        finally:
            del self._calls[number]

    def _greeted(self, frames: list[bytes]) -> None:
        self._dead = False
        if self._handshake is not None:
            self._handshake.greeted(frames)
            self._unshare()
            self._share()

    def _known(self, facts: Mapping[str, Any]) -> None:
        """Learn the contract from what the engine told of itself."""
        self._wire = WIRES[TokenSpeedWire.runtime if is_tokenspeed(facts) else VllmWire.runtime]

    def _share(self) -> None:
        """In control: pass on the words of an engine that is connected to this process only."""
        if self._handshake is None or self._relay is not None:
            return
        facts = self._handshake.facts
        if facts is None:
            return
        self._known(facts)
        if self.runtime != TokenSpeedWire.runtime:
            return
        greetings = {rank: msgspec.msgpack.encode(told) for rank, told in self._handshake.ranks.items()}
        self._relay = Relay(self._context, self._address, self._processes, greetings, self._pass_on)

    def _unshare(self) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def _pass_on(self, rank: int, frames: list[bytes]) -> None:
        """A request of another process, for a rank of the engine."""
        try:
            self._port.send(identity(rank), frames)
        except GatewayError as error:
            log.warning("the engine is not there any more", extra={"worker": self.url, "error": error.detail})
            self._unshare()

    def _take(self, frames: list[bytes]) -> None:
        """One message of the engine. One that cannot be read is the failure of nobody else's."""
        self.last_heard = clock.monotonic()
        if self._relay is not None:
            self._relay.spread(frames)
        if frames == [parts.DEAD]:
            self._died()
            return
        if self._relay is not None:
            return
        try:
            step = self._wire.step(frames)
        except ValueError as error:
            log.error("an engine's message is unreadable", extra={"worker": self.url, "error": str(error)})
            return
        for id, output in step.outputs:
            self._deliver(id, output, frames)
        if step.utility is not None:
            self._answer(step.utility)
        if step.load is not None and self._on_load is not None:
            self._on_load(step.load)

    def _deliver(self, id: str, output: Any, frames: list[bytes]) -> None:
        found = self._sources.get(id)
        if found is None:
            # Its abort is on the way.
            return
        source, choice = found
        try:
            tokens = self._wire.tokens(output)
            if tokens is None or not source.take(choice, *tokens):
                batch = self._wire.batch(output, choice, source.request, frames)
                check_ids(batch.ids)
                source.put(batch)
        except ValueError as error:
            message = "the engine sent what is not an answer"
            source.fail(GatewayError("worker_stream_failed", message, detail=str(error), worker_fault=True))

    def _answer(self, output: UtilityOutput) -> None:
        answer = self._calls.get(output.call_id)
        if answer is None or answer.done():
            return
        if output.failure_message is not None:
            message = "the engine could not do this"
            answer.set_exception(GatewayError("worker_failed", message, detail=output.failure_message))
        else:
            # Newer engines send the result with its type in front.
            typed = isinstance(output.result, list) and len(output.result) == 2
            answer.set_result(output.result[1] if typed else output.result)

    def _died(self) -> None:
        """The engine core is gone: so is everything it was working on."""
        self._dead = True
        if self._handshake is not None:
            self._handshake.ranks.clear()
        self._gone()

    def _gone(self) -> None:
        """Nobody answers any more."""
        self._unshare()
        error = GatewayError("worker_failed", "the engine has died", status=503, worker_fault=True)
        for source, _ in list(self._sources.values()):
            source.fail(error)


def _ranks(labels: Mapping[str, str]) -> int:
    """How many data-parallel ranks an engine has, by its labels."""
    told = labels.get("dp_size", "")
    return int(told) if told.isascii() and told.isdigit() else 1
