"""The layout of a prepared tokenizer, numbers in native byte order:

    0   8 bytes  "SMGTOK01"
    8   uint64   bytes of the head
    16  uint64   bytes of the file
    24  8 bytes  zero
    32  32 bytes BLAKE2b of the first 32 bytes and of all that follows the first 64
    64           the head: ``Head`` as msgpack, then zeros up to a multiple of 64
                 the sections, each at a multiple of 64: tables of the encoder, id to bytes, text to id

A file is never changed once it has its name. Nothing of it is believed before the digest agrees, and what native code
reads is checked entry by entry even then.
"""

import contextlib
import hashlib
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from smg._native.bpe import ByteBpe
from smg._native.vocab_table import VocabTable
from smg._native.word_table import WordTable
from smg.text.facts import Facts
from smg.text.mapped.version import VERSION

_MAGIC = b"SMGTOK01"
_HEADER = struct.Struct("=8sQQ8x")
_DIGEST = 32
_START = _HEADER.size + _DIGEST
_ALIGNMENT = 64


class Unusable(Exception):
    """The file is not there, damaged, or was made of something else; the text says which."""


class Head(msgspec.Struct, frozen=True):
    """What stands before the sections.

    ``version`` is that of the code, ``key`` the tokenizer's, ``sources`` the digest of the files it was made of
    (``fleet.tokenizer_files.digest``). ``reason`` is why there are no tables. ``decoder_error`` is why there is no
    section ``vocab``. ``added`` and ``normalised`` are the encoder's (``bpe.FastEncoder``), without the joiner.
    ``sections`` are offset, from the first one on, and size. ``configs`` are the two of ``facts`` as JSON, which has
    numbers of any size.
    """

    version: str
    key: str
    sources: str
    facts: Facts
    reason: str = ""
    decoder_error: str = ""
    added: list[tuple[str, int]] = []
    normalised: bool = False
    sections: dict[str, tuple[int, int]] = {}
    configs: bytes = b"[{}, {}]"


class Tables:
    """What a worker maps instead of loading: ``encoder`` for ``FastEncoder``, ``vocab`` (None: ``decoder_error`` says
    why), and ``ids`` by the texts of tokens."""

    def __init__(self, head: Head, sections: Mapping[str, memoryview]) -> None:
        """Raises ValueError, KeyError for sections that are missing or damaged."""
        self.head = head
        self.encoder = ByteBpe(sections["encoder"])
        self.ids = WordTable(sections["ids"])
        self.vocab = None if head.decoder_error else VocabTable(sections["vocab"])
        facts = head.facts
        if self.vocab is not None and self.vocab.size != facts.size:
            raise ValueError("tables of different sizes")
        # Whoever keeps a flag for each id must not be led to make room for all numbers there are.
        if not all(0 <= token < facts.size for token in facts.literals.values()) or not _in_range(facts.joiner):
            raise ValueError("ids outside the vocabulary")


class Mapped:
    """A prepared file. ``tables`` is None for a tokenizer that only the library can encode with."""

    def __init__(self, head: Head, tables: Tables | None) -> None:
        self.head = head
        self.tables = tables


def write(path: Path, head: Head, sections: Mapping[str, bytes | memoryview]) -> None:
    """Write a file under another name and give it its own at last, so that nobody ever sees half of one.

    ``sections`` and ``configs`` of the head are filled in. Raises OSError, and ValueError or OverflowError for texts
    and numbers that no file can hold.
    """
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, section in sections.items():
        places[name] = (end, len(section))
        end = _aligned(end + len(section))
    packed = _pack(msgspec.structs.replace(head, sections=places))
    pieces: list[bytes | memoryview] = [packed, _padding(_START + len(packed))]
    for section in sections.values():
        pieces += [section, _padding(len(section))]
    size = _START + sum(map(len, pieces))
    header = _HEADER.pack(_MAGIC, len(packed), size)
    whole = hashlib.blake2b(header, digest_size=_DIGEST)
    for piece in pieces:
        whole.update(piece)
    with _replacing(path) as number, os.fdopen(number, "wb") as file:
        file.writelines([header, whole.digest(), *pieces])


def read(path: Path, key: str) -> Mapped:
    """Map a file and check it, some 30 ms of a processor without the GIL. It stays mapped as long as the tables live.

    Raises:
        Unusable: nothing of it can be used.
    """
    try:
        with path.open("rb") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        # mmap raises ValueError for an empty file.
        raise Unusable(str(error)) from None
    head, start = _check(memory)
    if (head.version, head.key) != (VERSION, key):
        raise Unusable("it was made of something else, or by another version")
    if head.reason:
        return Mapped(head, None)
    try:
        return Mapped(head, Tables(head, dict(_cut(memory, start, head))))
    except (ValueError, KeyError) as error:
        raise Unusable(f"it is damaged: {error}") from None


def _check(memory: memoryview) -> tuple[Head, int]:
    """Return the head of a sound file, and where its sections begin."""
    if len(memory) < _START:
        raise Unusable("it is too short")
    magic, packed, size = _HEADER.unpack_from(memory)
    start = _aligned(_START + packed)
    if magic != _MAGIC or size != len(memory) or start > size:
        raise Unusable("it is cut off, or no prepared tokenizer")
    whole = hashlib.blake2b(memory[: _HEADER.size], digest_size=_DIGEST)
    whole.update(memory[_START:])
    if whole.digest() != memory[_HEADER.size : _START]:
        raise Unusable("its digest is wrong")
    try:
        return _unpack(memory[_START : _START + packed]), start
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Unusable("its head is of another kind") from None


def _pack(head: Head) -> bytes:
    configs = json.dumps([head.facts.config, head.facts.model_config]).encode()
    facts = msgspec.structs.replace(head.facts, config={}, model_config={})
    return msgspec.msgpack.encode(msgspec.structs.replace(head, facts=facts, configs=configs))


def _unpack(packed: memoryview) -> Head:
    head = msgspec.msgpack.decode(packed, type=Head)
    config, model_config = msgspec.convert(json.loads(head.configs), tuple[dict[str, Any], dict[str, Any]])
    facts = msgspec.structs.replace(head.facts, config=config, model_config=model_config)
    return msgspec.structs.replace(head, facts=facts)


def _cut(memory: memoryview, start: int, head: Head) -> Iterator[tuple[str, memoryview]]:
    for name, (at, size) in head.sections.items():
        if not 0 <= at <= at + size <= len(memory) - start:
            raise ValueError(f"the section {name} lies outside")
        yield name, memory[start + at : start + at + size]


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[int]:
    """A new file beside ``path``, which takes its place when all has gone well."""
    number, name = tempfile.mkstemp(prefix=".making-", dir=path.parent)
    try:
        yield number
        os.rename(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _in_range(joiner: int | None) -> bool:
    return joiner is None or 0 <= joiner < 1 << 31


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padding(size: int) -> bytes:
    return b"\0" * (_aligned(size) - size)
