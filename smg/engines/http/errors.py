"""What an HTTP engine's refusals and silences mean to a client and to the worker's name (spec routing 6; RL-01, RL-02).

A client's own mistake (4xx) is not here: it is passed on in the engine's words.
"""

import email.utils
from collections.abc import Mapping
from typing import Any

import msgspec

from smg.core import clock
from smg.core.errors import GatewayError
from smg.engines.http.client import Unreachable
from smg.engines.http.connection import BrokenExchange
from smg.engines.transport.errors import Meaning, presentable

_BROKEN = Meaning("worker_failed", 502, "the engine failed while it worked on the request", fault=True)
_TABLE: Mapping[int, Meaning] = {
    408: Meaning("request_timeout", 408, "the engine gave the request up because it took too long"),
    # Busy is not dead: it counts for nothing, and another worker may have room.
    429: Meaning("rate_limit_exceeded", 429, "the engine has no room for the request", relay=True),
    500: Meaning("worker_failed", 500, "the engine failed while it worked on the request", fault=True),
    503: Meaning("overloaded", 503, "the engine takes no requests at the moment", relay=True),
    504: Meaning("upstream_timeout", 504, "the engine did not answer in time", fault=True),
}


def refuses(status: int) -> bool:
    """Whether an answer of this status is an error of the gateway's own making, and may be tried elsewhere."""
    return status in _TABLE or 300 <= status < 400 or (status >= 500 and status != 501)


def from_status(status: int, retry_after: str, body: bytes) -> GatewayError:
    """The error that an answer stands for which ``refuses``."""
    meaning = _TABLE.get(status, _BROKEN)
    said = message_of(body)
    shown = presentable(said) if meaning.relay else ""
    return GatewayError(
        meaning.code,
        f"{meaning.text}: {shown}" if shown else meaning.text,
        status=meaning.status,
        retry_after=seconds(retry_after) if meaning.status in (429, 503) else None,
        detail=f"HTTP {status}: {said}",
        worker_fault=meaning.fault,
    )


def from_failure(error: Exception, *, established: bool = False) -> GatewayError:
    """The error of a connection that failed; ``established``: after the first bytes of the body."""
    if isinstance(error, Unreachable) and isinstance(error.__cause__, TimeoutError):
        return timeout(str(error))
    if isinstance(error, Unreachable):
        return GatewayError("worker_failed", "the engine is not reachable", detail=str(error), worker_fault=True)
    if isinstance(error, BrokenExchange) and established:
        message = "the engine's stream broke off"
        return GatewayError("worker_stream_failed", message, detail=str(error), worker_fault=True)
    message = "the engine closed the connection before it had answered"
    return GatewayError("worker_failed", message, detail=str(error), worker_fault=True)


def timeout(detail: str) -> GatewayError:
    """The engine was silent for too long."""
    return GatewayError("upstream_timeout", "the engine did not answer in time", detail=detail, worker_fault=True)


def message_of(body: bytes) -> str:
    """What an error body says, in whichever of the usual shapes it says it."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return body[:1000].decode("utf-8", "replace")
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
    return value if isinstance(value, str) else body[:1000].decode("utf-8", "replace")


def seconds(retry_after: str) -> float | None:
    """A Retry-After header in seconds from now: a number or a date; None for anything else."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - clock.wall())
