"""Tokenizer bundles: a zip that an engine streams, kept by its digest (spec engine-contract 2.10, text-pipeline 6).

Nothing of the archive is believed: the digest is checked before it is opened, and while it is unpacked the bytes that
really come out are counted, whatever its headers say.
"""

import asyncio
import hashlib
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE = 64 << 10
# End-of-central-directory record: signature, entry count at 10, directory size at 12; a comment may follow it.
_EOCD = struct.Struct("<4s4H2LH")
_EOCD_SIGNATURE = b"PK\x05\x06"
_ZIP64_LOCATOR, _ZIP64_LOCATOR_SIZE = b"PK\x06\x07", 20
_COMMENT_MAX = 0xFFFF
_DIRECTORY_MAX = 1 << 20


class BundleError(Exception):
    """A bundle that cannot be used; the text says why, for the log and ``ModelRecord.tokenizer_error``."""


class Limits(msgspec.Struct, frozen=True):
    """``received`` and ``unpacked`` in bytes, ``seconds`` for receiving."""

    seconds: float = 120.0
    received: int = 200 << 20
    entries: int = 50
    unpacked: int = 500 << 20


class Bundle(msgspec.Struct, frozen=True):
    """A bundle on disk. ``digest`` is the archive's SHA-256 in lower-case hex."""

    directory: Path
    digest: str


async def fetch(chunks: AsyncIterator[tuple[bytes, str]], cache: Path, limits: Limits = Limits()) -> Bundle:  # noqa: B008 - frozen
    """Receive, verify and unpack a bundle into ``cache/<digest>``; one that is there already is used as it is.

    ``chunks`` are (data, SHA-256 or empty) as ``GrpcDriver.tokenizer_bundle`` yields them.

    Raises:
        BundleError: too slow, too large, truncated, without or with the wrong digest, or an archive that is refused.
        GatewayError: the engine's own failure, from ``chunks``.
        OSError: the cache cannot be written.
    """
    await asyncio.to_thread(cache.mkdir, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache) as archive:
        try:
            async with asyncio.timeout(limits.seconds):
                digest = await _receive(chunks, archive, limits)
        except TimeoutError:
            raise BundleError(f"the tokenizer bundle took longer than {limits.seconds:g} s") from None
        directory = await asyncio.to_thread(install, archive, cache, digest, limits)
    return Bundle(directory, digest)


async def _receive(chunks: AsyncIterator[tuple[bytes, str]], archive: IO[bytes], limits: Limits) -> str:
    """Write the archive and return its digest once it is verified."""
    actual, size, expected = hashlib.sha256(), 0, ""
    async for data, digest in chunks:
        if expected:
            raise BundleError("the tokenizer bundle goes on after its digest")
        size += len(data)
        if size > limits.received:
            raise BundleError(f"the tokenizer bundle is larger than {limits.received} bytes")
        actual.update(data)
        archive.write(data)
        expected = digest
    if not expected:
        raise BundleError("the tokenizer bundle ended without its digest")
    if not _DIGEST.fullmatch(expected) or actual.hexdigest() != expected:
        raise BundleError("the tokenizer bundle does not have the digest it came with")
    return expected


def install(archive: IO[bytes], cache: Path, digest: str, limits: Limits) -> Path:
    """Unpack into ``cache/<digest>`` and return that: beside it and renamed, so that nobody ever sees half a bundle.

    Raises as ``unpack``, and OSError.
    """
    final = cache / digest
    if final.is_dir():
        return final
    scratch = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=cache))
    try:
        unpack(archive, scratch, limits)
        try:
            os.rename(scratch, final)
        except OSError:
            if not final.is_dir():
                raise
        return final
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def unpack(archive: IO[bytes], target: Path, limits: Limits) -> None:
    """Unpack a zip into the empty directory ``target``.

    Raises:
        BundleError: not a zip, too many entries, too much data, or an entry that would land outside ``target``.
    """
    _check_directory(archive, limits)
    try:
        with zipfile.ZipFile(archive) as bundle:
            names: set[str] = set()
            left = limits.unpacked
            if len(bundle.infolist()) > limits.entries:
                raise BundleError(f"the tokenizer bundle has more than {limits.entries} entries")
            for entry in bundle.infolist():
                if entry.is_dir():
                    continue
                path = _safe(entry)
                if str(path) in names:
                    raise BundleError(f"the tokenizer bundle has {str(path)!r} twice")
                names.add(str(path))
                left = _inflate(bundle, entry, target / path, left)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        # RuntimeError is how zipfile says that an entry is encrypted.
        raise BundleError(f"the tokenizer bundle is not a sound zip archive: {error}") from None


def _inflate(bundle: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, left: int) -> int:
    """Write one entry; returns the bytes that others may still have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with bundle.open(entry) as source, path.open("xb") as target:
        while piece := source.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise BundleError("the tokenizer bundle unpacks to more than it may")
            target.write(piece)
    return left


def _safe(entry: zipfile.ZipInfo) -> PurePosixPath:
    """The entry's path, if it stays inside the directory and is a plain file."""
    name = entry.filename
    path = PurePosixPath(name)
    if not name or "\\" in name or ":" in name or path.is_absolute() or ".." in path.parts:
        raise BundleError(f"the tokenizer bundle has an entry outside its directory: {name!r}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise BundleError(f"the tokenizer bundle has an entry that is no plain file: {name!r}")
    return path


def _check_directory(archive: IO[bytes], limits: Limits) -> None:
    """Refuse a huge central directory before zipfile makes an object of each of its entries."""
    size = archive.seek(0, os.SEEK_END)
    archive.seek(max(0, size - _COMMENT_MAX - _EOCD.size - _ZIP64_LOCATOR_SIZE))
    tail = archive.read()
    place = tail.rfind(_EOCD_SIGNATURE)
    if place < 0 or len(tail) - place < _EOCD.size:
        raise BundleError("the tokenizer bundle is not a sound zip archive: it has no directory")
    _, _, _, _, entries, directory, _, _ = _EOCD.unpack_from(tail, place)
    # The 64-bit record would replace these numbers; only archives far beyond our limits need it.
    if tail[max(0, place - _ZIP64_LOCATOR_SIZE) : place].startswith(_ZIP64_LOCATOR):
        raise BundleError("the tokenizer bundle is a zip64 archive")
    if entries > limits.entries:
        raise BundleError(f"the tokenizer bundle has more than {limits.entries} entries")
    if directory > _DIRECTORY_MAX:
        raise BundleError("the tokenizer bundle's directory is too large")
