"""The tokenizer bundle an engine hands to gateways: a zip of files, streamed (spec engine-contract 2.10)."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from smg_grpc_proto.generated import common_pb2

CHUNK_BYTES = 64 << 10

# A fixed date keeps the archive, and with it its digest, the same for the same files: gateways cache by digest.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(files: Mapping[str, bytes]) -> bytes:
    """Zip (deflate) ``files``, name to content, into one archive whose bytes depend on nothing else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def chunks(archive: bytes, size: int = CHUNK_BYTES, digest: str | None = None) -> Iterator[Any]:
    """Yield ``archive`` as GetTokenizerChunk messages of ``size`` bytes; the last one carries the SHA-256.

    ``digest`` replaces the true one (mock engines lie with it). An empty archive is one empty chunk.
    """
    if digest is None:
        digest = hashlib.sha256(archive).hexdigest()
    for start in range(0, max(1, len(archive)), size):
        last = start + size >= len(archive)
        yield common_pb2.GetTokenizerChunk(data=archive[start : start + size], sha256=digest if last else "")
