"""Who and what a request is: its id, its trace parent, its deadline (spec api-and-ops 2.1, case OB-01)."""

import re
from collections.abc import Mapping

from smg.config.settings import ServerSettings
from smg.core import clock, ids
from smg.core.context import RequestContext, TraceParent

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

# Characters of a trace state that have to be passed on at least (W3C Trace Context 3.3.1.5).
_LONGEST_STATE = 512


def request_id(headers: Mapping[str, str], names: tuple[str, ...], prefix: str) -> str:
    """The client's own id from the first of ``names`` that is present and acceptable, else ``prefix`` and a new one."""
    for name in names:
        value = headers.get(name.lower())
        if value is not None and ids.acceptable(value):
            return value
    return ids.request_id(prefix)


def trace_parent(headers: Mapping[str, str]) -> TraceParent | None:
    """The W3C trace context of a request with a span id of ours in it; its trace, flags and state go on.

    None when there is none or it is malformed: then nothing is passed on, and the engine begins a trace as it likes.
    """
    told = headers.get("traceparent")
    match = None if told is None else _TRACEPARENT.fullmatch(told)
    if match is None:
        return None
    version_00_with_more = match[0].startswith("00") and match[4] is not None
    if version_00_with_more:
        return None
    return TraceParent(match[1], ids.span_id(), match[3], _trace_state(headers), parent=match[2])


def _trace_state(headers: Mapping[str, str]) -> str:
    """The state, unless it is one that engines would refuse the whole request for."""
    state = headers.get("tracestate", "").strip()
    return state if len(state) <= _LONGEST_STATE and state.isascii() and state.isprintable() else ""


def context_of(headers: Mapping[str, str], naming: tuple[str, str], settings: ServerSettings) -> RequestContext:
    """The context of a request that has just arrived; ``naming`` has the prefix of new ids and the endpoint's label,
    and ``headers`` are by names in small letters."""
    now = clock.monotonic()
    prefix, endpoint = naming
    return RequestContext(
        request_id=request_id(headers, settings.request_id_headers, prefix),
        endpoint=endpoint,
        deadline=now + settings.request_timeout_secs,
        trace=trace_parent(headers),
        started=now,
        headers=headers,
    )
