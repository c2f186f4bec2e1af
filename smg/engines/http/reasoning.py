"""The name of the reasoning field in chat answers that are passed on: engines have two for it (field case OA-08)."""

from typing import Any

import msgspec

from smg.engines.http.sse import data_of

OWN, OTHER = "reasoning_content", "reasoning"

_MARK = b'"reasoning"'


def of_event(event: bytes) -> bytes:
    """A chunk of a stream with its reasoning under the name that clients read; all others as they are."""
    if _MARK not in event or not event.startswith(b"data:"):
        return event
    body = of_body(data_of(event))
    return event if body is None else b"data: " + body + b"\n\n"


def of_body(body: bytes) -> bytes | None:
    """A whole answer or a chunk, likewise; None when nothing is to be changed."""
    if _MARK not in body:
        return None
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return msgspec.json.encode(value) if _rename(value) else None


def _rename(value: Any) -> bool:
    choices = value.get("choices") if isinstance(value, dict) else None
    changed = False
    for choice in choices if isinstance(choices, list) else ():
        for part in ("message", "delta"):
            message = choice.get(part) if isinstance(choice, dict) else None
            if isinstance(message, dict) and OTHER in message:
                said = message.pop(OTHER)
                if message.get(OWN) is None:
                    message[OWN] = said
                changed = True
    return changed
