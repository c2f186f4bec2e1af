"""Wire of the control socket: 4 bytes of big-endian length, then one msgpack map.

A request is ``{op, …}``; the answer ``{ok: true, result}`` or ``{ok: false, error: {code, message}}``. Before it there
may be parts, ``{ok: true, part}``: maps of lists, which make up the result.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

MAX_FRAME = 16 << 20
# Longest path a Unix socket address holds, its terminating zero included.
_ADDRESS_MAX = 107


class FrameError(Exception):
    """The peer sent what is no frame."""


def socket_path(state_dir: str, boot_id: int) -> Path:
    """Where the control process of this boot listens."""
    return Path(state_dir).expanduser() / "run" / f"{boot_id & (2**64 - 1):016x}" / "control.sock"


@contextlib.contextmanager
def address(path: Path) -> Iterator[str]:
    """Yield a name of the socket that fits a Unix address, however deep its directory lies (which must exist)."""
    if len(os.fsencode(path)) <= _ADDRESS_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


async def read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read one frame; None at the end of the connection.

    Raises:
        FrameError: too long, cut off, or no msgpack map.
    """
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > MAX_FRAME:
            raise FrameError(f"a frame of {length} bytes is longer than {MAX_FRAME}")
        body = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        if error.partial or error.expected != 4:
            raise FrameError("the connection ended inside a frame") from None
        return None
    try:
        return msgspec.msgpack.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a msgpack map: {error}") from None


async def write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    """Write one frame and wait until it is out. Raises ConnectionError."""
    body = msgspec.msgpack.encode(message)
    writer.write(len(body).to_bytes(4, "big") + body)
    await writer.drain()
