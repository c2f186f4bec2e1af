"""What a GGUF file says before its tensors' data: key-value metadata and where each tensor is."""

import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_MAGIC = b"GGUF"
# GGUF's value types that are plain numbers: type number -> struct format.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9
_DEFAULT_ALIGNMENT = 32


class Tensor(NamedTuple):
    """One tensor: ``shape`` innermost dimension first, ``kind`` as GGUF numbers types, ``offset`` into the data."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class Layout(NamedTuple):
    """The parts of a GGUF file.

    ``places`` has the file offset of each value of the metadata; the tensor list starts at ``tensors_at``, the data at
    ``data_at``, a multiple of ``alignment``.
    """

    metadata: dict[str, Any]
    places: dict[str, int]
    tensors: list[Tensor]
    tensors_at: int
    data_at: int
    alignment: int


def read(path: Path) -> dict[str, Any]:
    """Return all metadata of the GGUF file (version 2 or 3, little-endian) at ``path``.

    Raises:
        ValueError: not such a file, or cut short.
    """
    return layout(path).metadata


def layout(path: Path) -> Layout:
    """Return the layout of the GGUF file at ``path``. Raises ValueError as ``read``."""
    with path.open("rb") as file:
        try:
            magic, version, tensor_count, count = struct.unpack("<4sIQQ", file.read(24))
            if magic != _MAGIC or version not in (2, 3):
                raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
            metadata: dict[str, Any] = {}
            places: dict[str, int] = {}
            for _ in range(count):
                key = _string(file)
                (kind,) = _unpack(file, "I")
                places[key] = file.tell()
                metadata[key] = _value(file, kind)
            tensors_at = file.tell()
            tensors = [_tensor(file) for _ in range(tensor_count)]
        except struct.error:
            raise ValueError(f"{path} is cut short") from None
        alignment = int(metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
        return Layout(metadata, places, tensors, tensors_at, aligned(file.tell(), alignment), alignment)


def aligned(offset: int, alignment: int) -> int:
    """The first multiple of ``alignment`` from ``offset`` on."""
    return -(-offset // alignment) * alignment


def _tensor(file: BinaryIO) -> Tensor:
    name = _string(file)
    (dimensions,) = _unpack(file, "I")
    shape = _unpack(file, f"{dimensions}Q")
    kind, offset = _unpack(file, "IQ")
    return Tensor(name, shape, kind, offset)


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
