"""Headers of gRPC calls over HTTP/2: requests to HPACK, answers to statuses (spec engine-contract 4.4).

Requests are written as literals that enter no table, so there is no state to keep and nothing to get out of step.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import cast
from urllib.parse import unquote_to_bytes

import grpc
import hpack
import msgspec

from smg.engines.transport.errors import RpcError, from_status

Fields = tuple[tuple[bytes, bytes], ...]

# The names of status codes 0 to 16.
_STATUSES = tuple(code.name for code in sorted(grpc.StatusCode, key=lambda code: code.value[0]))
# What an HTTP status without a gRPC status means, and a reset: tables of the gRPC protocol.
_HTTP: Mapping[bytes, str] = {
    b"400": "INTERNAL",
    b"401": "UNAUTHENTICATED",
    b"403": "PERMISSION_DENIED",
    b"404": "UNIMPLEMENTED",
    b"429": "UNAVAILABLE",
    b"502": "UNAVAILABLE",
    b"503": "UNAVAILABLE",
    b"504": "UNAVAILABLE",
}
_RESET: Mapping[int, str] = {7: "UNAVAILABLE", 8: "CANCELLED", 11: "RESOURCE_EXHAUSTED", 12: "PERMISSION_DENIED"}

# RFC 7541: shrink the peer's picture of our table to nothing, which fits any limit it may set; :method POST.
_SHRINK_AND_POST = b"\x20\x83"
_SCHEMES = {False: b"\x86", True: b"\x87"}
_PATH, _AUTHORITY = b"\x04", b"\x01"
# RFC 7541: literals without indexing, and those that nobody may index, with a name of their own.
_LITERALS = (0x00, 0x10)
# How many blocks are remembered, and of how many bytes; errors have texts of their own.
_REMEMBERED, _SHORT = 64, 64
_LONGEST_TIMEOUT_MS = 99_999_999


class Status(msgspec.Struct, frozen=True):
    """The end of a call: the status' name, its message and the trailers."""

    name: str
    details: str = ""
    trailers: Mapping[str, str] = {}

    def error(self, *, established: bool) -> RpcError | None:
        """What to raise for it, None for OK."""
        if self.name == "OK":
            return None
        return from_status(self.name, self.details, self.trailers, established=established)


class Headers:
    """The fields of a header block, and what they say.

    All good answers of an engine begin and end with the same few blocks, so it is worked out once for each.
    """

    def __init__(self, fields: Fields) -> None:
        self.fields = fields

    @cached_property
    def informational(self) -> bool:
        """Whether these are 1xx headers, which precede an answer's own."""
        return any(name == b":status" and value.startswith(b"1") for name, value in self.fields)

    @cached_property
    def begins(self) -> bool:
        """Whether these are the first headers of an answer whose messages follow."""
        return self.refusal(end=False) is None

    def refusal(self, *, end: bool) -> Status | None:
        """Read the first headers of an answer: None when messages follow, else how the call has ended."""
        found = dict(self.fields)
        http = found.get(b":status", b"")
        if end and b"grpc-status" in found:
            return self.status
        if http != b"200":
            return Status(_HTTP.get(http, "UNKNOWN"), f"HTTP status {http.decode('latin-1') or 'missing'}")
        if not found.get(b"content-type", b"").startswith(b"application/grpc"):
            return Status("UNKNOWN", "the answer's content-type is not gRPC's")
        return Status("UNKNOWN", "the answer has no grpc-status") if end else None

    @cached_property
    def early(self) -> Status | None:
        """The status of an answer without messages that ends after its headers, not with them.

        Proxies over Go's HTTP library (Caddy) make that of an answer of trailers only: its headers and an empty DATA
        frame.
        """
        return self.status if any(name == b"grpc-status" for name, _ in self.fields) else None

    @cached_property
    def status(self) -> Status:
        """What trailers say."""
        trailers = {name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in self.fields}
        number = trailers.get("grpc-status", "")
        if not number:
            return Status("UNKNOWN", "the trailers have no grpc-status", trailers)
        name = _STATUSES[int(number)] if number.isdecimal() and int(number) < len(_STATUSES) else "UNKNOWN"
        details = unquote_to_bytes(trailers.get("grpc-message", "")).decode("utf-8", "replace")
        return Status(name, details, trailers)


class HeaderDecoder:
    """HPACK decompression of one connection's answers.

    After the first answers, servers send references into the table, and literals that do not enter it. Such a block
    changes nothing, so its fields are remembered until another one may have changed the table.
    """

    def __init__(self) -> None:
        self._decoder = hpack.Decoder()
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Raises ValueError for what is no header block; the connection is of no use then."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            headers = Headers(cast("Fields", tuple(self._decoder.decode(block, raw=True))))
        except (hpack.HPACKError, ValueError, IndexError) as error:
            raise ValueError(f"headers that cannot be decompressed: {error}") from None
        if not _leaves_table(block):
            self._known.clear()
        elif len(block) <= _SHORT and len(self._known) < _REMEMBERED:
            self._known[block] = headers
        return headers


def _leaves_table(block: bytes) -> bool:
    """Whether a valid block certainly changes nothing: short references and short literals without indexing."""
    at = 0
    while at < len(block):
        kind = block[at]
        at += 1
        if kind in _LITERALS:
            for _ in ("name", "value"):
                size = block[at] & 0x7F
                if size == 0x7F:
                    return False
                at += 1 + size
        elif kind < 0x80 or kind == 0xFF:
            return False
    return True


def request_head(tls: bool, authority: str, path: str) -> bytes:
    """Encode what all calls of one path have in common."""
    fields = [
        _SHRINK_AND_POST,
        _SCHEMES[tls],
        _PATH + _string(path.encode()),
        _AUTHORITY + _string(authority.encode()),
        _literal(b"te", b"trailers"),
        _literal(b"content-type", b"application/grpc"),
        # Nothing else is offered, so no message comes compressed.
        _literal(b"grpc-accept-encoding", b"identity"),
    ]
    return b"".join(fields)


def request_tail(timeout: float | None, metadata: Mapping[str, str] | None) -> bytes:
    """Encode what is a call's own: the deadline (in seconds) and its metadata.

    Raises:
        GatewayError: ``worker_failed`` (500), as for a call that has failed: the metadata cannot be sent.
    """
    out = b""
    if timeout is not None:
        out += _literal(b"grpc-timeout", b"%dm" % min(max(1, round(timeout * 1000)), _LONGEST_TIMEOUT_MS))
    for name, value in metadata.items() if metadata else ():
        if not (name.islower() and name.isascii() and value.isascii() and value.isprintable()):
            raise from_status("INTERNAL", f"metadata {name!r} cannot be sent")
        out += _literal(name.encode(), value.encode())
    return out


def reset_status(code: int, reason: str) -> Status:
    """What an HTTP/2 reset with ``code`` means."""
    return Status(_RESET.get(code, "INTERNAL"), f"{reason} (HTTP/2 error {code})")


def _string(value: bytes) -> bytes:
    """A string without Huffman coding: its length with a prefix of 7 bits, and its bytes."""
    length = len(value)
    if length < 127:
        return bytes((length,)) + value
    out, length = bytearray((127,)), length - 127
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes(out) + bytes((length,)) + value


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + _string(name) + _string(value)
