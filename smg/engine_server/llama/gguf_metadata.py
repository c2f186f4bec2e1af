"""Key-value metadata of a GGUF file, without its tensors."""

import struct
from pathlib import Path
from typing import Any, BinaryIO

_MAGIC = b"GGUF"
# GGUF's value types that are plain numbers: type number -> struct format.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9


def read(path: Path) -> dict[str, Any]:
    """Return all metadata of the GGUF file (version 2 or 3, little-endian) at ``path``.

    Raises:
        ValueError: not such a file, or cut short.
    """
    with path.open("rb") as file:
        try:
            magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
            if magic != _MAGIC or version not in (2, 3):
                raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
            return {_string(file): _value(file, *_unpack(file, "I")) for _ in range(count)}
        except struct.error:
            raise ValueError(f"{path} is cut short") from None


def _unpack(file: BinaryIO, form: str) -> tuple[Any, ...]:
    form = "<" + form
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _string(file: BinaryIO) -> str:
    (size,) = _unpack(file, "Q")
    return file.read(size).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        item, count = _unpack(file, "IQ")
        if item in _NUMBERS:
            return list(_unpack(file, f"{count}{_NUMBERS[item]}"))
        return [_value(file, item) for _ in range(count)]
    if kind not in _NUMBERS:
        raise ValueError(f"unknown value type {kind} in the GGUF metadata")
    return _unpack(file, _NUMBERS[kind])[0]
