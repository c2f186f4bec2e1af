"""The SentencePiece model file: the few fields of its protocol buffer that encoding depends on."""

import struct
from collections.abc import Iterator
from enum import IntEnum

import msgspec

from smg.text.formats.loaded import FormatError


class PieceType(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(msgspec.Struct, frozen=True):
    """One entry of the vocabulary; its id is its place."""

    text: str
    score: float
    type: PieceType


class Model(msgspec.Struct):
    """A model. ``kind`` is 1 for Unigram, 2 for BPE, 3 for words, 4 for characters; an id of -1 is none."""

    pieces: list[Piece]
    kind: int = 1
    byte_fallback: bool = False
    suffix: bool = False
    unk: int = 0
    bos: int = 1
    eos: int = 2
    pad: int = -1
    charsmap: bytes = b""
    dummy_prefix: bool = True
    squeeze: bool = True
    escape: bool = True


# Field numbers of TrainerSpec and NormalizerSpec, and where they go.
_TRAINER = {3: "kind", 24: "suffix", 35: "byte_fallback", 40: "unk", 41: "bos", 42: "eos", 43: "pad"}
_NORMALIZER = {2: "charsmap", 3: "dummy_prefix", 4: "squeeze", 5: "escape"}
_FLAGS = frozenset({"suffix", "byte_fallback", "dummy_prefix", "squeeze", "escape"})


def parse(data: bytes) -> Model:
    """Read the model file's bytes.

    Raises:
        FormatError: they are not a SentencePiece model.
    """
    out = Model([])
    try:
        for field, value in _fields(data):
            if field == 1:
                out.pieces.append(_piece(_bytes(value)))
            elif field in (2, 3):
                _set(out, _bytes(value), _TRAINER if field == 2 else _NORMALIZER)
    except (IndexError, ValueError, struct.error) as error:
        raise FormatError(f"not a SentencePiece model: {error}") from None
    if not out.pieces:
        raise FormatError("not a SentencePiece model: it has no pieces")
    return out


def _piece(data: bytes) -> Piece:
    found = dict(_fields(data))
    score = struct.unpack("<f", _bytes(found[2]))[0] if 2 in found else 0.0
    kind = found.get(3, 1)
    if isinstance(kind, bytes):
        raise ValueError("a message where a number is due")
    return Piece(_bytes(found.get(1, b"")).decode(), score, PieceType(kind))


def _set(out: Model, data: bytes, names: dict[int, str]) -> None:
    for field, value in _fields(data):
        name = names.get(field)
        if name is not None:
            setattr(out, name, bool(value) if name in _FLAGS else value)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message is due")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers as signed integers, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value - (1 << 64) if value >> 63 else value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("it is cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
