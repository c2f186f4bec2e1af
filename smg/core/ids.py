"""Identifiers: of requests, of answers, of tool calls, and of dispatches for engines."""

import os
import re
import time
import uuid

_ACCEPTED = re.compile(r"[\x21-\x7e]{1,128}")
_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Each byte below a multiple of 62 stands for a digit; the others would favour some digits, and are dropped.
_FAIR = 256 // len(_ALPHABET) * len(_ALPHABET)
_DIGITS = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
_UNFAIR = bytes(range(_FAIR, 256))


def random_id(length: int = 24) -> str:
    """Return ``length`` random alphanumerics (about 5.95 bits each) from the system's generator."""
    out = b""
    while len(out) < length:
        out += os.urandom(length + 8).translate(_DIGITS, _UNFAIR)
    return out[:length].decode()


def request_id(prefix: str = "req-") -> str:
    """Mint a request id; a dialect's ``prefix`` tells what was asked for (spec api-and-ops 2.1)."""
    return prefix + random_id()


def response_id(request: str, prefix: str) -> str:
    """Id of the answer to ``request``, whose id a client may have chosen, behind the ``prefix`` that SDKs expect."""
    return request if request.startswith(prefix) else prefix + request


def acceptable(value: str | None) -> bool:
    """Tell whether a client's own request id may be used: 1 to 128 visible ASCII characters."""
    return value is not None and _ACCEPTED.fullmatch(value) is not None


def uuid7() -> uuid.UUID:
    """Return a version 7 UUID (RFC 9562): 48 bits of Unix milliseconds, then 74 random bits."""
    stamp = time.time_ns() // 1_000_000
    value = (stamp << 80) | int.from_bytes(os.urandom(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return uuid.UUID(int=value)


def minted(identifier: str) -> float | None:
    """Return the Unix time of a version 7 UUID; None for any other text."""
    try:
        value = uuid.UUID(identifier)
    except ValueError:
        return None
    return (value.int >> 80) / 1000 if value.version == 7 else None


def dispatch_id(request: str, attempt: int) -> str:
    """Id of one dispatch on an engine, unique per attempt (spec engine-contract 2.6).

    SGLang's scheduler aborts by prefix, so no id may be the prefix of another: the random tail has a fixed length.
    """
    return f"{request}-{attempt}-{os.urandom(8).hex()}"


def span_id() -> str:
    """Mint the id of a span of ours: 16 hex digits, not all zero (W3C Trace Context)."""
    return f"{int.from_bytes(os.urandom(8), 'big') or 1:016x}"


def tool_call_id() -> str:
    """Default id of a tool call: ``call_`` and 24 hex digits, all random (spec parsers 12)."""
    return "call_" + os.urandom(12).hex()
