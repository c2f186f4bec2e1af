"""Encoded bytes as the file that decoders read, without a copy of them."""

import io
from typing import BinaryIO, cast

from smg.core.media import Encoded


class _View(io.RawIOBase):
    """A view of bytes as a file; ``io.BytesIO`` would copy it."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self._view[self._at : self._at + len(target)]
        target[: len(found)] = found
        self._at += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        if start + offset < 0:
            raise ValueError("before the beginning")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at


def reader(encoded: Encoded) -> BinaryIO:
    """``encoded`` as a file to be read. The bytes of ``bytes`` are shared by Python itself."""
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else cast("BinaryIO", _View(encoded))
