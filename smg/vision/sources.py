"""What a client may name as the source of media, and the bytes of the sources that need no network.

``data:`` URLs and files below one configured directory (spec multimodal 3).
"""

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from smg._native import base64
from smg.core.background import background
from smg.core.errors import GatewayError

_CHUNK = 1 << 20


class MediaPolicy(msgspec.Struct, frozen=True):
    """Limits on fetching.

    ``allowed_domains`` None admits every host, else exactly these (lower case). ``allowed_networks`` opens networks
    that are refused by default (CIDR). ``local_root`` is the directory ``file://`` URLs may read from, None refuses
    them. ``timeout_secs`` covers one item with all its redirects, 0 means no limit. ``max_bytes`` bounds one encoded
    item, ``max_bytes_of`` one of some kinds, ``max_total_bytes`` and ``max_items`` those of a request; ``concurrency``
    is how many are fetched at a time.
    """

    allowed_domains: frozenset[str] | None = None
    allowed_networks: tuple[str, ...] = ()
    local_root: str | None = None
    timeout_secs: float = 10.0
    max_bytes: int = 256 << 20
    max_bytes_of: Mapping[str, int] = {}
    max_total_bytes: int = 512 << 20
    max_items: int = 64
    max_redirects: int = 5
    concurrency: int = 8

    def limit(self, kind: str) -> int:
        """Bytes of one encoded item of ``kind``."""
        return self.max_bytes_of.get(kind, self.max_bytes)


def refuse(code: str, message: str, param: str | None, detail: str = "") -> GatewayError:
    """An error about one item, which the client caused: all codes used here mean 400."""
    return GatewayError(code, message, param=param, detail=detail)


def too_large(kind: str, limit: int, param: str | None) -> GatewayError:
    """The error for an item above ``limit`` bytes."""
    return refuse("media_too_large", f"{kind} input payload exceeds the maximum size of {limit} bytes", param)


async def read_data_url(url: str, kind: str, limit: int, param: str | None) -> bytes:
    """Decode ``data:<anything>;base64,<payload>``; whitespace and missing padding are forgiven.

    Raises:
        GatewayError: ``media_too_large`` (before anything is decoded) or ``invalid_value``.
    """
    comma = url.find(",")
    if comma < 0:
        raise refuse("invalid_value", "a data URL needs a comma before its payload", param)
    if not url[:comma].lower().rstrip().endswith(";base64"):
        raise refuse("invalid_value", "a data URL must be encoded as base64", param)
    # Four characters carry three bytes; whitespace may come on top, but not without bound.
    size = len(url) - comma - 1
    if size > 2 * limit + 64:
        raise too_large(kind, limit, param)
    if size <= _CHUNK:
        data = _decode_base64(url, comma + 1, param)
    else:
        data = await background(_decode_base64, url, comma + 1, param)
    if len(data) > limit:
        raise too_large(kind, limit, param)
    return data


def _decode_base64(url: str, start: int, param: str | None) -> bytes:
    if url.find("%", start) >= 0:
        url, start = unquote(url[start:]), 0
    try:
        data = base64.decode(url, start)
    except ValueError:
        raise refuse("invalid_value", "the payload is not valid base64", param) from None
    if not data:
        raise refuse("invalid_value", "the payload is empty", param)
    return data


async def read_file_url(url: str, kind: str, policy: MediaPolicy, param: str | None) -> bytes:
    """Read a regular file below ``policy.local_root``, symbolic links resolved first.

    Raises:
        GatewayError: ``media_not_allowed``, ``media_unreachable`` or ``media_too_large``.
    """
    if policy.local_root is None:
        raise refuse("media_not_allowed", "local files are not allowed", param)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise refuse("media_not_allowed", "a file URL must not name a host", param)
    return await asyncio.to_thread(_read_file, unquote(parts.path), policy.local_root, kind, policy.limit(kind), param)


def _read_file(name: str, root: str, kind: str, limit: int, param: str | None) -> bytes:
    outside = refuse("media_not_allowed", "the file is outside of the allowed directory", param)
    try:
        path = Path(name).resolve(strict=True)
        if not path.is_relative_to(Path(root).resolve(strict=True)):
            raise outside
        # Opening must not block on a pipe, nor follow a link that was put there after resolving.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise refuse("media_not_allowed", "only regular files are allowed", param)
        with open(descriptor, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        # The same answer for a missing and an unreadable file outside: it must not tell what exists there.
        if not Path(os.path.normpath(name)).is_relative_to(root):
            raise outside from None
        raise refuse("media_unreachable", "the file can't be read", param, detail=repr(error)) from None
    if len(data) > limit:
        raise too_large(kind, limit, param)
    return data
