"""Addresses of engine cores: ``ipc:///path`` or ``zmq://host:port`` (spec engine-contract 6.2).

The gateway binds everything and the engine connects. Each process of the gateway has a pair of sockets of its own, its
process number in their names, which is also the engine's number for it (``client_index``).
"""

import os
import stat
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3
_FIRST_PORT, _PORTS = 20_000, 10_000
# What a Unix socket's path may have at most, the longest suffix taken off.
_LONGEST = 107 - len("-out-9999.sock")


class ZmqAddress(msgspec.Struct, frozen=True):
    """``handshake`` is where engines say hello (a tcp endpoint); ``base`` the path that all socket files begin with."""

    handshake: str
    base: str

    def input(self, process: int) -> str:
        """Endpoint on which a process sends requests."""
        return f"ipc://{self.base}-in-{process}.sock"

    def output(self, process: int) -> str:
        """Endpoint on which a process gets outputs."""
        return f"ipc://{self.base}-out-{process}.sock"

    @property
    def ready(self) -> Path:
        """What the engine said when it was ready, for a control process that starts later."""
        return Path(f"{self.base}.ready")


def parse(url: str) -> ZmqAddress:
    """Parse an engine core's URL.

    Raises:
        ValueError: another scheme, a path that is not absolute or too long, or no port.
    """
    parts = urlsplit(url)
    if parts.scheme == "ipc":
        path = url.removeprefix("ipc://")
        if not path.startswith("/") or len(os.fsencode(path)) > _LONGEST:
            raise ValueError(f"{url!r}: an absolute path of at most {_LONGEST} bytes is required")
        return ZmqAddress(f"tcp://127.0.0.1:{_FIRST_PORT + _fnv1a(path.encode()) % _PORTS}", path)
    if parts.scheme != "zmq":
        raise ValueError(f"{url!r}: the scheme must be ipc or zmq")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or not port or parts.path.strip("/"):
        raise ValueError(f"{url!r}: an engine core's address is zmq://host:port, where the gateway listens for it")
    directory = os.environ.get("XDG_RUNTIME_DIR") or f"{tempfile.gettempdir()}/smg-{os.getuid()}"
    return ZmqAddress(f"tcp://{parts.hostname}:{port}", f"{directory}/zmq-{port}")


def prepare(address: ZmqAddress) -> None:
    """Have a directory of our own for the socket files.

    Raises:
        OSError: it cannot be made, or belongs to somebody else; they could listen in.
    """
    directory = Path(address.base).parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{directory} is no directory of ours")


def clear(endpoint: str) -> None:
    """Take away the socket file that a dead process has left; anything else that is in the way is an OSError."""
    path = Path(endpoint.removeprefix("ipc://"))
    if path.is_symlink() or path.exists():
        if not path.is_socket():
            raise FileExistsError(f"{path} is in the way and no socket")
        path.unlink(missing_ok=True)


def _fnv1a(data: bytes) -> int:
    value = _OFFSET
    for byte in data:
        value = ((value ^ byte) * _PRIME) & (2**64 - 1)
    return value
