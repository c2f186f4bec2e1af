"""The reference transport: grpc.aio, with message bytes passed through untouched (DESIGN 6, engine side).

It knows paths and bytes only, so it carries any contract. One connection per engine and process, opened on first use;
up to four when streams pile up (spec engine-contract 4.2).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from smg.engines.transport.address import parse
from smg.engines.transport.base import MESSAGE_LIMIT
from smg.engines.transport.errors import RpcError, from_status
from smg.engines.transport.grpcio_call import GrpcioCall, status_error

# A connection is given up after so many calls in a row that found it unavailable. (After a GOAWAY grpcio opens a new
# one by itself and lets the running streams of the old one finish.)
_UNAVAILABLE_LIMIT = 3
_STREAMS_PER_CONNECTION = 128
_MAX_CONNECTIONS = 4

_OPTIONS: tuple[tuple[str, int], ...] = (
    # What is sent is measured by who sends it, who can say what to do about it.
    ("grpc.max_send_message_length", -1),
    # Servers answer pings more often than every 10 s with GOAWAY.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Only of calls that a GOAWAY left behind unseen, because there is no service config that says more. All others are
    # the gateway's: it knows other workers.
    ("grpc.enable_retries", 1),
    ("grpc.service_config_disable_resolution", 1),
    # Stream window; without the probe, which would let it grow, a stalled client holds 256 KiB of its own stream.
    ("grpc.http2.lookahead_bytes", 256 << 10),
    ("grpc.http2.bdp_probe", 0),
    # Channels to one address would otherwise share one connection, and a replaced channel its broken one.
    ("grpc.use_local_subchannel_pool", 1),
    # An engine that comes back is found within a second (the default backs off up to two minutes).
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Despite its name this is the connect timeout.
    ("grpc.min_reconnect_backoff_ms", 5_000),
)


class _Connection:
    """One channel and what is known of it: calls that run on it and failures in a row."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.calls = 0
        self.failures = 0
        self.retired = False
        self._methods: dict[tuple[str, bool], Any] = {}

    def method(self, path: str, streaming: bool) -> Any:
        """Return the callable of ``path``; without serializers grpcio passes bytes through."""
        key = (path, streaming)
        found = self._methods.get(key)
        if found is None:
            make = self.channel.unary_stream if streaming else self.channel.unary_unary
            found = self._methods[key] = make(path)
        return found


class GrpcioTransport:
    """A ``Transport`` over grpc.aio to ``url``; every message comes as bytes.

    ``root_certificates`` (PEM) replaces the system's trust store for ``grpcs://``; ``message_limit`` is as in
    ``Connect``. Raises ValueError for a URL that is no engine address.
    """

    def __init__(self, url: str, root_certificates: bytes | None = None, message_limit: int = MESSAGE_LIMIT) -> None:
        self._address = parse(url)
        # The default of 4 MiB is exceeded by a long answer with log probabilities.
        self._options = (*_OPTIONS, ("grpc.max_receive_message_length", message_limit))
        self._roots = root_certificates
        self._connections: list[_Connection] = []
        self._retired: set[_Connection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def unary(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        connection = self._pick()
        connection.calls += 1
        error: RpcError | None = None
        try:
            call = connection.method(path, False)(message, timeout=timeout, metadata=_pairs(metadata))
            try:
                return bytes(await call)
            except grpc.aio.AioRpcError as failure:
                error = status_error(failure, established=False)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Nobody cancelled this task: the channel was closed under the call.
                error = from_status("UNAVAILABLE", "the connection was closed")
            raise error
        finally:
            self._done(connection, error)

    def stream(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> GrpcioCall[bytes]:
        return GrpcioCall(*self._open(path, message, timeout, metadata))

    @property
    def connected(self) -> bool:
        """Whether all connections stand. One that broke stands again only once a call has asked for it."""
        ready = grpc.ChannelConnectivity.READY
        return bool(self._connections) and all(each.channel.get_state() is ready for each in self._connections)

    async def close(self) -> None:
        """Close all connections; running calls end with UNAVAILABLE. Idempotent."""
        self._closed = True
        for connection in (*self._connections, *self._retired):
            await connection.channel.close()
        self._connections.clear()
        self._retired.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    def _open(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None
    ) -> tuple[Any, Callable[[RpcError | None], None]]:
        """Begin a streaming call; returns it and what has to be told of its end."""
        connection = self._pick()
        connection.calls += 1
        call = connection.method(path, True)(message, timeout=timeout, metadata=_pairs(metadata))
        return call, lambda error: self._done(connection, error)

    def _pick(self) -> _Connection:
        """Return the connection with the fewest calls, a new one when all are full."""
        if self._closed:
            raise from_status("UNAVAILABLE", "the transport is closed")
        best = min(self._connections, key=lambda connection: connection.calls, default=None)
        if best is None or (best.calls >= _STREAMS_PER_CONNECTION and len(self._connections) < _MAX_CONNECTIONS):
            best = _Connection(self._channel())
            self._connections.append(best)
        return best

    def _channel(self) -> Any:
        if self._address.tls:
            credentials = grpc.ssl_channel_credentials(root_certificates=self._roots)
            return grpc.aio.secure_channel(self._address.target, credentials, options=self._options)
        return grpc.aio.insecure_channel(self._address.target, options=self._options)

    def _done(self, connection: _Connection, error: RpcError | None) -> None:
        """Account for the end of a call: replace a connection that keeps failing, close a replaced one once idle."""
        connection.calls -= 1
        connection.failures = connection.failures + 1 if error is not None and error.rpc == "UNAVAILABLE" else 0
        if connection.failures >= _UNAVAILABLE_LIMIT and connection in self._connections:
            self._connections.remove(connection)
            self._retired.add(connection)
        if connection in self._retired and connection.calls == 0:
            self._retired.discard(connection)
            task = asyncio.get_running_loop().create_task(connection.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _pairs(metadata: Mapping[str, str] | None) -> tuple[tuple[str, str], ...] | None:
    return tuple(metadata.items()) if metadata else None
