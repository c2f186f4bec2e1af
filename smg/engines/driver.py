"""GrpcDriver: one Adapter and one transport joined into a tokens backend (DESIGN 6, spec engine-contract 2 and 4)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from smg.core.backends import EngineRequest
from smg.core.background import background
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaItem
from smg.engines import admin, health_v1, kv_events
from smg.engines.admin import AdminResult, ProfileOptions
from smg.engines.base import Adapter, Decoder, EmbedResult, EngineInfo, EngineLoad
from smg.engines.contract import not_offered
from smg.engines.frames import Frames
from smg.engines.kv_events import KvBatch
from smg.engines.parcel import INLINE, Parcel, TensorTransport
from smg.engines.source import GrpcSource, cancelled_error
from smg.engines.transport.base import MESSAGE_LIMIT, Call, TokenCall, TokenTransport, Transport, lingers
from smg.engines.transport.errors import RpcError, of_contract

log = logging.getLogger("smg.engines")

# Time limits in seconds (spec engine-contract 4.2, 2.10 and 2.11). Generate has none but the request's own.
INFO_SECS = 10.0
HEALTH_SECS = 5.0
LOADS_SECS = 2.0
ABORT_SECS = 2.0
ENCODE_SECS = 120.0
BUNDLE_SECS = 120.0
# On top of what an engine was given to run out of requests.
FLUSH_MARGIN_SECS = 45.0
PROFILE_SECS = 630.0
_TRAILERS_SECS = 1.0


class GrpcDriver:
    """The ``TokensBackend`` of one engine. Use on one event loop only.

    ``tensors`` and the worker's ``labels`` decide which way media go.
    """

    kind: Literal["tokens"] = "tokens"

    def __init__(
        self,
        url: str,
        adapter: Adapter,
        transport: Transport,
        message_limit: int = MESSAGE_LIMIT,
        tensors: TensorTransport | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self._message_limit = message_limit
        self.adapter = adapter
        self._frames = Frames(adapter)
        # Paths are asked for by every request.
        self._generate_path = self._path("Generate")
        self._transport = transport
        self._tensors = tensors or TensorTransport()
        self._labels = labels or {}
        self._reads_tokens = transport if isinstance(transport, TokenTransport) else None
        self._sources: set[GrpcSource] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retired = False

    @property
    def runtime(self) -> str:
        """Name of the contract."""
        return self.adapter.name

    @property
    def capabilities(self) -> frozenset[str]:
        """What the contract offers."""
        return self.adapter.capabilities

    async def open(self, ctx: RequestContext, request: EngineRequest) -> GrpcSource:
        """Dispatch ``request``; the Source honours the context's cancellation and deadline.

        Raises:
            GatewayError: what the contract cannot express (400), a message beyond the limit (413), or the request is
                cancelled or too late already.
        """
        if ctx.cancel.reason is not None:
            raise cancelled_error(ctx.cancel.reason)
        if ctx.remaining() == 0.0:
            raise cancelled_error("deadline")
        if request.media is None:
            return self._start(ctx, request, self._frames.generate(request), INLINE)
        parcel = self._tensors.parcel(self.adapter, self._labels)
        try:
            # Megabytes to copy, which is done without the GIL.
            message = await background(self.adapter.generate, request, parcel)
            # Nor are they kept while the engine answers.
            return self._start(ctx, replace(request, media=None), message, parcel)
        except BaseException:
            parcel.drop()
            raise

    async def info(self, timeout: float = INFO_SECS) -> EngineInfo:
        """Ask for model and server information.

        Raises:
            GatewayError: the engine does not answer, or not in this contract (``worker_failed``).
        """
        model, server = await asyncio.gather(
            self._required(self._path("GetModelInfo"), b"", timeout),
            self._required(self._path("GetServerInfo"), b"", timeout),
        )
        try:
            return self.adapter.info(model, server)
        except ValueError as error:
            raise _unreadable(error) from None

    async def health(self, timeout: float = HEALTH_SECS, *, thorough: bool = False) -> bool:
        """Tell whether the engine serves.

        ``thorough`` asks the engine's own HealthCheck (first registration, after a failure); otherwise the cheap
        ``grpc.health.v1``, and the engine's own where that is not offered (spec engine-contract 2.7). The engine's own
        has at least the time its contract needs: some generate a token for it.

        Raises:
            GatewayError: no answer.
        """
        if not thorough:
            try:
                return health_v1.serving(await self._transport.unary(health_v1.CHECK, health_v1.REQUEST, timeout))
            except RpcError as error:
                if error.rpc not in ("UNIMPLEMENTED", "NOT_FOUND"):
                    raise
        patience = max(timeout, self.adapter.health_secs)
        return self.adapter.healthy(await self._required(self._path("HealthCheck"), b"", patience))

    async def loads(self, timeout: float = LOADS_SECS) -> list[EngineLoad]:
        """Ask for the load of each rank. Raises GatewayError; ask only where the contract has ``loads``."""
        answer = await self._transport.unary(self._path("GetLoads"), self.adapter.loads_request(), timeout)
        try:
            return self.adapter.loads(answer)
        except ValueError as error:
            raise _unreadable(error) from None

    async def embed(self, ctx: RequestContext, request_id: str, ids: Sequence[int]) -> EmbedResult:
        """Embed one prompt; the request's own deadline bounds it.

        Raises:
            GatewayError: ``not_implemented`` where the contract has no Embed, or as for any call.
        """
        message = self.adapter.embed(request_id, ids)
        timeout = ctx.remaining()
        if timeout == 0.0:
            raise cancelled_error("deadline")
        answer = await self._transport.unary(self._path("Embed"), message, timeout, _trace(ctx, None))
        try:
            return self.adapter.embedding(answer)
        except ValueError as error:
            raise _unreadable(error) from None

    async def encode(
        self,
        ctx: RequestContext,
        request_id: str,
        item: MediaItem,
        token_id: int,
        room: int,
        timeout: float = ENCODE_SECS,
    ) -> None:
        """Have one media item encoded and handed over in ``room``; ``timeout`` (seconds) and the request's own deadline
        bound it.

        Raises:
            GatewayError: ``not_implemented`` where the contract has no encoder, ``worker_failed`` (502) when the engine
                does not accept it, ``request_too_large`` (413), or as for any call.
        """
        parcel = self._tensors.parcel(self.adapter, self._labels)
        try:
            # Megabytes to copy, which is done without the GIL.
            message = await background(self.adapter.encode, request_id, item, token_id, room, parcel)
            self._fitting(message)
            remaining = ctx.remaining()
            if remaining == 0.0:
                raise cancelled_error("deadline")
            timeout = timeout if remaining is None else min(timeout, remaining)
            path = f"/{self.adapter.encoder_service}/Encode"
            answer = await self._required(path, message, timeout, _trace(ctx, None))
        finally:
            # Who accepts an item has read it.
            parcel.drop()
        try:
            accepted = self.adapter.encoded(answer)
        except ValueError as error:
            raise _unreadable(error) from None
        if not accepted:
            raise GatewayError("worker_failed", "the engine did not accept the media", worker_fault=True)

    async def flush_cache(self, timeout_secs: float = 0.0) -> AdminResult:
        """Empty the prefix cache. ``timeout_secs`` is how long the engine may wait until no request runs.

        Raises:
            GatewayError: ``not_implemented`` (501) where the contract or the engine has no such thing, and as for any
                call.
        """
        return await self._admin("FlushCache", admin.flush(timeout_secs), timeout_secs + FLUSH_MARGIN_SECS)

    async def start_profile(self, options: ProfileOptions) -> AdminResult:
        """Start the engine's profiler. Raises GatewayError as ``flush_cache``."""
        return await self._admin("StartProfile", admin.start_profile(options), PROFILE_SECS)

    async def stop_profile(self) -> AdminResult:
        """Stop the engine's profiler. Raises GatewayError as ``flush_cache``."""
        return await self._admin("StopProfile", b"", PROFILE_SECS)

    async def tokenizer_bundle(self, timeout: float = BUNDLE_SECS) -> AsyncIterator[tuple[bytes, str]]:
        """Stream the tokenizer bundle as (data, sha256 hex or empty) (spec engine-contract 2.10).

        Raises:
            GatewayError: as for any call; the consumer enforces size limits.
        """
        call = self._transport.stream(self._path("GetTokenizer"), b"", timeout)
        try:
            while messages := await call.read():
                for message in messages:
                    try:
                        yield self.adapter.tokenizer_chunk(message)
                    except ValueError as error:
                        raise _unreadable(error) from None
        finally:
            call.cancel()

    async def kv_events(self, start: int = 0) -> AsyncIterator[KvBatch]:
        """Follow what the engine's KV cache does, from batch ``start`` on (0: from a snapshot or its history).

        Ends when the engine ends the stream. Ask only where the contract has ``kv_events``.

        Raises:
            RpcError: the stream broke; UNIMPLEMENTED, OUT_OF_RANGE and DATA_LOSS have a meaning of their own (spec
                engine-contract 2.12).
            ValueError: what came is no batch.
        """
        call = self._transport.stream(self._path("SubscribeKvEvents"), kv_events.subscription(start), None)
        try:
            while messages := await call.read():
                for message in messages:
                    yield kv_events.decode(message)
        finally:
            call.cancel()

    def relabel(self, labels: Mapping[str, str]) -> None:
        """The worker's labels are these from now on."""
        self._labels = labels

    def retire(self) -> None:
        """Close as soon as the running generations are over (the worker has left the fleet)."""
        self._retired = True
        self._close_when_idle()

    async def close(self) -> None:
        """Cancel what runs, let the Aborts go out, close the connection. Idempotent."""
        for source in list(self._sources):
            await source.cancel("shutdown")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ABORT_SECS)
        await self._transport.close()

    def abort(self, request_id: str, reason: str) -> None:
        for message in self.adapter.abort([request_id], reason):
            self._spawn(self._send_abort(request_id, message))

    def forget(self, source: GrpcSource) -> None:
        self._sources.discard(source)
        self._close_when_idle()

    def background(self, call: Call | TokenCall) -> None:
        if lingers(call):
            call.linger(_TRAILERS_SECS)
        else:
            self._spawn(_read_trailers(call))

    def _start(self, ctx: RequestContext, request: EngineRequest, message: bytes, parcel: Parcel) -> GrpcSource:
        """Send ``message``, which ``request`` has become. Raises GatewayError (413)."""
        self._fitting(message)
        decoder = self.adapter.decoder(request)
        call = self._generate(message, decoder, _trace(ctx, request.trace))
        source = GrpcSource(self, ctx, request, call, decoder, parcel)
        self._sources.add(source)
        return source

    def _generate(self, message: bytes, decoder: Decoder, metadata: dict[str, str] | None) -> Call | TokenCall:
        """Send Generate; the transport reads the token chunks where it can and the decoder allows it."""
        path = self._generate_path
        if self._reads_tokens is not None and decoder.plain is not None:
            return self._reads_tokens.generate(path, message, None, metadata, layout=decoder.layout)
        return self._transport.stream(path, message, None, metadata)

    async def _required(
        self, path: str, message: bytes, timeout: float | None, metadata: dict[str, str] | None = None
    ) -> bytes:
        """Call what every engine of the contract has. Raises RpcError; see ``of_contract``."""
        try:
            return await self._transport.unary(path, message, timeout, metadata)
        except GatewayError as error:
            raise of_contract(error) from None

    def _fitting(self, message: bytes) -> None:
        """Raise GatewayError (413) for a message that is too large to be sent."""
        if len(message) > self._message_limit:
            raise GatewayError(
                "request_too_large",
                f"the request is {len(message)} bytes for the engine, but only {self._message_limit} may be sent to it "
                "(--grpc-max-message-size)",
            )

    def _close_when_idle(self) -> None:
        if self._retired and not self._sources:
            self._retired = False
            task = asyncio.get_running_loop().create_task(self.close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)

    async def _send_abort(self, request_id: str, message: bytes) -> None:
        try:
            await self._transport.unary(self._path("Abort"), message, ABORT_SECS)
        except GatewayError as error:
            # The stream's reset has told the engine already.
            log.debug("abort not delivered", extra={"worker": self.url, "request": request_id, "error": error.detail})

    async def _admin(self, method: str, message: bytes, timeout: float) -> AdminResult:
        feature = admin.FEATURES[method]
        if feature not in self.adapter.capabilities:
            raise not_offered(self.adapter.name, feature)
        answer = await self._transport.unary(self._path(method), message, timeout)
        try:
            return admin.result(answer)
        except ValueError as error:
            raise _unreadable(error) from None

    def _path(self, method: str) -> str:
        return f"/{self.adapter.service}/{method}"

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# Drivers that close themselves have no owner any more who could hold their task.
_closing: set[asyncio.Task[None]] = set()


async def _read_trailers(call: Call | TokenCall) -> None:
    """Let a finished stream end by itself, so that its place on the connection is free again."""
    try:
        async with asyncio.timeout(_TRAILERS_SECS):
            while await call.read():
                pass
    except (GatewayError, TimeoutError):
        call.cancel()


def _trace(ctx: RequestContext, span: str | None) -> dict[str, str] | None:
    """W3C Trace Context as metadata; ``span`` (this dispatch's own) wins over the request's."""
    parent = span or (ctx.trace.header() if ctx.trace is not None else None)
    if parent is None:
        return None
    metadata = {"traceparent": parent}
    if ctx.trace is not None and ctx.trace.state:
        metadata["tracestate"] = ctx.trace.state
    return metadata


def _unreadable(error: ValueError) -> GatewayError:
    return GatewayError("worker_failed", "the engine sent what is not an answer", detail=str(error), worker_fault=True)
