"""Listening sockets: one per worker on the same port, opened once and kept by the supervisor (DESIGN 2).

The kernel spreads connections over SO_REUSEPORT sockets. Because the supervisor keeps each one open, connections that
arrive while a worker is being replaced wait in its queue instead of being refused.
"""

import errno
import socket
import ssl

from smg.config.settings import ServerSettings

BACKLOG = 4096
# Bytes the kernel takes for a client beyond what the network can carry at the moment. Left alone it takes megabytes for
# one that does not read (field case ME-01), and its engine is paused that much later.
UNSENT_LIMIT = 128 << 10


class StartError(Exception):
    """The gateway can't start; the message is one line for the operator."""


def open_listeners(host: str, port: int, count: int) -> list[socket.socket]:
    """Open ``count`` listening sockets on ``host``; port 0 picks a free one, the same for all.

    Raises:
        StartError: the address is unknown, not ours, in use, or needs rights we do not have.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise StartError(f"--host {host!r} is not an address: {error.strerror or error}") from None
    listeners: list[socket.socket] = []
    try:
        # SO_REUSEPORT would silently share the port with another gateway of the same user: ask without it first.
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        for _ in range(count):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.setblocking(False)
            listener.bind(address)
            address = listener.getsockname()
        for listener in listeners:
            # Inherited by the connections it accepts.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_LIMIT)
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise StartError(_reason(error, host, port)) from None
    return listeners


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is already in use; choose another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs rights this user does not have"
    return f"cannot listen on {host} port {port}: {error.strerror}"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def url_of(settings: ServerSettings, port: int) -> str:
    """The URL under which this machine reaches the gateway."""
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    scheme = "https" if settings.tls_cert_path else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """Build the server's TLS context, or None when TLS is off.

    Raises:
        StartError: certificate or key are not usable.
    """
    if settings.tls_cert_path is None or settings.tls_key_path is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert_path, settings.tls_key_path)
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"--tls-cert-path and --tls-key-path cannot be used: {error}") from None
    return context
