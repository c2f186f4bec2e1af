"""Status mapping: what a gRPC status means to a client and to a worker's reputation (spec engine-contract 4.3).

Every transport uses this table, so that an engine's failure reads the same whatever carried the call.
"""

import re
from collections.abc import Mapping

import msgspec

from smg.core.errors import GatewayError

CONSTRAINT_TRAILER = "smg-constraint-failed"

# How gRPC's implementations refuse a message for its size: with the status that also stands for having no room.
_OVERSIZE = re.compile(r"message (larger than max|exceeds maximum size)")

# What both transports say of a proxy's error page for a request that it found too large (nginx: client_max_body_size).
_PROXY_OVERSIZE = re.compile(r"(HTTP|Received http2 header with) status:? 413")

# How our own side of a call refuses one: grpcio's words, and those of the native transport.
_ANSWER_OVERSIZE = re.compile(r"\bCLIENT: Received message larger than max|^a message beyond the size limit")

# How servers say that they have no such method at all; an engine's own refusal of a feature has words of its own.
_NO_METHOD = re.compile(r"\s*$|.*\b(method not (found|implemented)|unknown (service|method))\b", re.I | re.S)

# Longest part of an engine's own message that a client gets to see, in characters.
_SHOWN = 400
# An absolute path, a host and port, a traceback: nothing of this may reach a client.
_INTERNAL = re.compile(
    r"(?<![\w.])/[\w.-]+/|[A-Za-z]:\\|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[\w.-]+:\d{2,5}\b|\[[0-9a-fA-F:]+\]"
    r'|Traceback|File "|\bipv[46]:|\bunix:'
)


class Meaning(msgspec.Struct, frozen=True):
    """How one gRPC status is told: error code, HTTP status, text, and whether the worker is to blame.

    ``relay`` lets the engine's own message through (it explains the client's mistake), once it is clean.
    """

    code: str
    status: int
    text: str
    fault: bool = False
    relay: bool = False


_INVALID = Meaning("invalid_request", 400, "the engine refused the request", relay=True)
_BROKEN = Meaning("worker_failed", 500, "the engine failed while it worked on the request", fault=True)
_TABLE: Mapping[str, Meaning] = {
    "INVALID_ARGUMENT": _INVALID,
    "FAILED_PRECONDITION": _INVALID,
    "OUT_OF_RANGE": _INVALID,
    "UNAUTHENTICATED": Meaning("invalid_api_key", 401, "the engine did not accept the gateway's credentials"),
    "PERMISSION_DENIED": Meaning("permission_denied", 403, "the engine does not permit the request"),
    "NOT_FOUND": Meaning("not_found", 404, "the engine does not know what was asked for", relay=True),
    "ALREADY_EXISTS": Meaning("conflict", 409, "the request conflicts with another one on the engine"),
    "ABORTED": Meaning("conflict", 409, "the engine aborted the request"),
    "RESOURCE_EXHAUSTED": Meaning("rate_limit_exceeded", 429, "the engine has no room for the request"),
    "UNIMPLEMENTED": Meaning("not_implemented", 501, "the engine does not offer this operation"),
    "UNAVAILABLE": Meaning("worker_failed", 503, "the engine is not reachable", fault=True),
    "DEADLINE_EXCEEDED": Meaning("upstream_timeout", 504, "the engine did not answer in time", fault=True),
    # Nobody on our side cancelled, so this is the engine's doing and no mistake of the client.
    "CANCELLED": Meaning("worker_failed", 502, "the engine cancelled the request", fault=True),
    "INTERNAL": _BROKEN,
    "UNKNOWN": _BROKEN,
    "DATA_LOSS": _BROKEN,
}
_TOO_LARGE = Meaning("request_too_large", 413, "the request is larger than the engine takes", relay=True)
_TOO_LARGE_FOR_PROXY = Meaning("request_too_large", 413, "the request is larger than a proxy before the engine takes")
_ANSWER_TOO_LARGE = Meaning(
    "request_too_large",
    413,
    "the engine's answer has a larger message than the gateway takes from engines (--grpc-max-message-size)",
)
_CONSTRAINT = Meaning("constraint_failed", 422, "the engine could not satisfy the output constraint", relay=True)
_NOT_ITS_CONTRACT = Meaning("worker_failed", 502, "the engine does not speak the contract it is known for", fault=True)
_STREAM_BROKEN = Meaning("worker_stream_failed", 502, "the engine's stream broke off", fault=True)


class RpcError(GatewayError):
    """A GatewayError that came from a gRPC status; ``rpc`` is the status' name (``UNAVAILABLE``)."""

    def __init__(self, rpc: str, meaning: Meaning, message: str, detail: str) -> None:
        super().__init__(
            meaning.code, message, status=meaning.status, detail=f"{rpc}: {detail}", worker_fault=meaning.fault
        )
        self.rpc = rpc


def from_status(
    rpc: str, details: str, trailers: Mapping[str, str] | None = None, *, established: bool = False
) -> RpcError:
    """Turn a status other than OK into the error to raise.

    ``details`` is the status' message: it goes to the log whole, and to the client only where it explains the client's
    own mistake and names no internals. ``established`` says that the stream had brought messages: what then breaks it
    is ``worker_stream_failed``.
    """
    meaning = _TABLE.get(rpc, _BROKEN)
    if rpc == "FAILED_PRECONDITION" and trailers is not None and CONSTRAINT_TRAILER in trailers:
        meaning = _CONSTRAINT
    elif _ANSWER_OVERSIZE.search(details):
        # No engine is to blame, and every other one would answer the same.
        meaning = _ANSWER_TOO_LARGE
    elif rpc == "RESOURCE_EXHAUSTED" and _OVERSIZE.search(details):
        meaning = _TOO_LARGE
    elif rpc == "UNKNOWN" and _PROXY_OVERSIZE.fullmatch(details):
        meaning = _TOO_LARGE_FOR_PROXY
    elif established and meaning.fault and rpc != "DEADLINE_EXCEEDED":
        meaning = _STREAM_BROKEN
    message = meaning.text
    if meaning.relay:
        shown = presentable(details)
        if shown:
            message = f"{meaning.text}: {shown}"
    return RpcError(rpc, meaning, message, details)


def of_contract(error: GatewayError) -> GatewayError:
    """What ``error`` means for an RPC that every engine of the contract has.

    Where there is no such method another engine has taken the address: that is the worker's fault, and others may be
    tried. What an engine says of one request with the same status (a feature that it lacks) stays as it is.
    """
    if not isinstance(error, RpcError) or error.rpc != "UNIMPLEMENTED" or error.worker_fault:
        return error
    details = error.detail.removeprefix(f"{error.rpc}: ")
    if not _NO_METHOD.match(details):
        return error
    return RpcError(error.rpc, _NOT_ITS_CONTRACT, _NOT_ITS_CONTRACT.text, details)


def presentable(details: str) -> str:
    """Return what a client may see of an engine's message: the beginning, on one line, or nothing when it has paths,
    addresses or a traceback in it."""
    line = " ".join(details[: 4 * _SHOWN].split())
    if not line or _INTERNAL.search(details):
        return ""
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
