"""How an HTTP/2 connection meets the network: a plain socket on the event loop, or TLS through asyncio.

The plain one reads and writes natively: the loop tells that the socket is readable, one call without the GIL does the
rest. Under TLS asyncio owns the socket, and bytes pass through its transport.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from typing import Any, Protocol

from smg._native.h2 import Connection
from smg.engines.transport.address import Address

# Head start of one of a host's addresses over the next, in seconds.
HEAD_START_SECS = 0.25
# A host that is gone without a word: seconds of silence before TCP asks, between questions, how many, and milliseconds
# that what was sent may stay unconfirmed. Firewalls and load balancers see, too, that the connection is still wanted.
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 40_000),
)


class Peer(Protocol):
    """What a link tells of."""

    native: Connection

    def settle(self) -> None:
        """Input has been worked through."""
        ...

    def lost(self, details: str) -> None:
        """The connection is over. Idempotent."""
        ...


class Link(Protocol):
    """An open way to the engine."""

    def flush(self) -> None:
        """Send what is to be sent, as far as the network takes it; the rest follows by itself."""
        ...

    def close(self) -> None:
        """Send what goes at once and close. Idempotent."""
        ...


class SocketLink:
    """A connected non-blocking socket, read when it is readable."""

    def __init__(self, sock: socket.socket, peer: Peer) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._peer = peer
        self._native = peer.native
        self._loop = asyncio.get_running_loop()
        self._waiting = False
        self._closed = False
        self._loop.add_reader(self._fd, self._readable)

    def flush(self) -> None:
        if self._closed:
            return
        try:
            done = self._native.send(self._fd)
        except OSError as error:
            self._hear_out()
            self._peer.lost(str(error))
            return
        if done == self._waiting:
            self._waiting = not done
            if done:
                self._loop.remove_writer(self._fd)
            else:
                self._loop.add_writer(self._fd, self.flush)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        # The peer may be gone, and so are we.
        with contextlib.suppress(OSError):
            self._native.send(self._fd)
        self._socket.close()

    def _hear_out(self) -> None:
        """Take what the engine said before it went: it may have answered while a request was still on its way."""
        with contextlib.suppress(OSError):
            while not self._closed and self._native.receive(self._fd) > 0:
                self._peer.settle()

    def _readable(self) -> None:
        try:
            count = self._native.receive(self._fd)
        except OSError as error:
            self._peer.lost(str(error))
            return
        if count > 0:
            self._peer.settle()
        elif count == 0:
            self._peer.lost("the engine closed the connection")


class TlsLink(asyncio.Protocol):
    """The protocol of a TLS transport."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._peer.native.feed(data)
        self._peer.settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.lost(str(exc) if exc is not None else "the engine closed the connection")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def flush(self) -> None:
        while self._transport is not None and not self._paused and (data := self._peer.native.output()):
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self.flush()
            self._transport.close()
            self._transport = None


async def connect(address: Address, roots: bytes | None, peer: Peer) -> Link:
    """Connect to ``address``; ``roots`` (PEM) replaces the trust store, else the system's or the one grpcio is told of.

    Raises:
        OSError: nobody is there, or not whom the certificate names, or it does not speak HTTP/2.
    """
    host, _, port = address.target.rpartition(":")
    host = host.strip("[]")
    if address.tls:
        return await _connect_tls(host, int(port), roots, peer)
    return SocketLink(await reached(host, int(port)), peer)


async def reached(host: str, port: int) -> socket.socket:
    """Connect to one of the addresses that ``host`` has now.

    They are tried in the system's order, each with a head start over the next (RFC 8305): one that swallows packets
    costs no more than that, and one that refuses costs nothing.

    Raises:
        OSError: none of them answers.
    """
    loop = asyncio.get_running_loop()
    failure = OSError(f"no address for {host}")
    waiting = list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    tries: set[asyncio.Task[socket.socket]] = set()
    try:
        while waiting or tries:
            if waiting:
                family, kind, protocol, _, target = waiting.pop(0)
                tries.add(loop.create_task(_dial(family, kind, protocol, target)))
            patience = HEAD_START_SECS if waiting else None
            done, _ = await asyncio.wait(tries, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                tries.discard(task)
                try:
                    return task.result()
                except OSError as error:
                    failure = error
    finally:
        for task in tries:
            task.add_done_callback(_hang_up)
            task.cancel()
    raise failure


async def _dial(family: int, kind: int, protocol: int, target: Any) -> socket.socket:
    # Where the system has no IPv6, say, this already fails, and only for such an address.
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, target)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _hang_up(task: "asyncio.Task[socket.socket]") -> None:
    """Close a connection that was made in the same moment as another one."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect_tls(host: str, port: int, roots: bytes | None, peer: Peer) -> Link:
    loop = asyncio.get_running_loop()
    # Reading the system's trust store takes a while.
    context = await loop.run_in_executor(None, _tls_context, roots)
    sock = await reached(host, port)
    transport, link = await loop.create_connection(lambda: TlsLink(peer), ssl=context, sock=sock, server_hostname=host)
    spoken = transport.get_extra_info("ssl_object")
    if spoken is None or spoken.selected_alpn_protocol() != "h2":
        link.close()
        raise OSError("the peer does not offer HTTP/2")
    return link


def _keep_alive(sock: socket.socket) -> None:
    for option in _KEEPALIVE:
        sock.setsockopt(*option)


def _tls_context(roots: bytes | None) -> ssl.SSLContext:
    if roots is not None:
        context = ssl.create_default_context(cadata=roots.decode("ascii"))
    else:
        # grpcio's variable: it carries the unary calls, and one private authority should do for both.
        context = ssl.create_default_context(cafile=os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH") or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # HTTP/2 forbids it (RFC 9113, 9.2.1).
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2"])
    return context
