"""Tensors that come by files of shared memory, read as the engines' own servers read them (spec multimodal 13)."""

import os
import stat
from collections.abc import Iterable
from typing import Any

from smg.core import shared_memory
from smg.engine_server.mock.ask import Refused

# One of those servers takes no other names.
_BEGINNINGS = ("smg-mm-", "smg-tokenspeed-")


def take(tensors: Iterable[Any], *, unlink: bool) -> list[Any]:
    """Put the bytes of the files that ``tensors`` (TensorData) name into them; returns the handles that were there.

    Raises:
        Refused: there is no such file, or it is not what the handle says.
    """
    handles = []
    for tensor in tensors:
        if tensor.WhichOneof("payload") == "shm":
            handle = type(tensor.shm)()
            handle.CopyFrom(tensor.shm)
            tensor.inline = _read(handle, unlink)
            handles.append(handle)
    return handles


def _read(handle: Any, unlink: bool) -> bytes:
    name = handle.name.lstrip("/")
    if "/" in name or not name.startswith(_BEGINNINGS):
        raise Refused(f"{handle.name!r} is no name of a tensor")
    path = shared_memory.DIRECTORY / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise Refused(f"{name!r} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused(f"{name!r} is no regular file")
        data = os.pread(descriptor, handle.nbytes, handle.offset)
    finally:
        os.close(descriptor)
        if unlink:
            path.unlink(missing_ok=True)
    if len(data) != handle.nbytes:
        raise Refused(f"{name!r} has {len(data)} bytes, not {handle.nbytes}")
    return data
