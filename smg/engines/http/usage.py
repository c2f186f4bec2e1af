"""Reads token counts from an answer that is only passed on (field case LM-03).

The bytes come out as they went in, with two exceptions: when the gateway itself has asked for a usage event that the
client did not want, this event alone is taken out again; and reasoning under its newer name gets the one that clients
read (field case OA-08).
"""

import contextlib
from typing import Any, Protocol

import msgspec

from smg.core.events import Usage
from smg.engines.http import reasoning
from smg.engines.http.sse import Events, data_of

# Bytes of a buffered answer that are kept to read its counts.
MAX_BODY = 8 << 20
_MARKS = (b'"usage"', b'"meta_info"')


class Tap(Protocol):
    """Sees an answer on its way."""

    @property
    def usage(self) -> Usage:
        """The counts told so far."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the body and return what may go out now."""
        ...

    def finish(self) -> bytes:
        """The body has ended, whole or not: return what was held back."""
        ...


class StreamTap:
    """The tap of server-sent events. Only whole events go out, so that something can be put between any two of them.

    ``hide`` takes events out that have a usage and nothing else (OpenAI's: no choices). ``chat``: the events are chunks
    of a chat answer.
    """

    def __init__(self, *, hide: bool = False, chat: bool = False) -> None:
        self._events = Events()
        self._hide = hide
        self._chat = chat
        self._counts = Counts()

    @property
    def usage(self) -> Usage:
        return self._counts.usage

    def feed(self, data: bytes) -> bytes:
        return b"".join(self._own(event) for event in self._events.feed(data) if not self._take(event))

    def finish(self) -> bytes:
        rest, self._events.rest = self._events.rest, b""
        return b"" if self._take(rest) else rest

    def _own(self, event: bytes) -> bytes:
        return reasoning.of_event(event) if self._chat else event

    def _take(self, event: bytes) -> bool:
        """Read an event; True when it is to be hidden."""
        if not any(mark in event for mark in _MARKS):
            return False
        try:
            value = msgspec.json.decode(data_of(event))
        except (msgspec.MsgspecError, UnicodeError):
            return False
        self._counts.learn(value)
        return self._hide and isinstance(value, dict) and value.get("choices") == [] and bool(value.get("usage"))


class BodyTap:
    """The tap of an answer in one piece. One of ``chat`` is held until it is whole, if it is not too long for that."""

    def __init__(self, *, chat: bool = False) -> None:
        self._chat = chat
        self._parts: list[bytes] = []
        self._size = 0
        self._counts = Counts()

    @property
    def usage(self) -> Usage:
        return self._counts.usage

    def feed(self, data: bytes) -> bytes:
        self._size += len(data)
        if self._size <= MAX_BODY:
            self._parts.append(data)
            return b"" if self._chat else data
        held = b"".join(self._parts) if self._chat else b""
        self._parts.clear()
        return held + data

    def finish(self) -> bytes:
        body = b"".join(self._parts)
        self._parts.clear()
        with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
            self._counts.learn(msgspec.json.decode(body))
        if not self._chat:
            return b""
        return reasoning.of_body(body) or body


class Counts:
    """Token counts as the dialects write them: OpenAI's ``usage``, Anthropic's and Responses' inside an object of their
    own, SGLang's ``meta_info`` of each generation."""

    def __init__(self) -> None:
        self._whole = Usage()
        self._generations: dict[int, Usage] = {}

    def learn(self, value: Any) -> None:
        """Take over what ``value``, an event or a whole answer, says; anything may be missing."""
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(item, dict):
                continue
            if isinstance(item.get("meta_info"), dict):
                index = item.get("index")
                self._generations[index if isinstance(index, int) else number] = _usage(item["meta_info"])
            for place in (item, item.get("response"), item.get("message")):
                if isinstance(place, dict) and isinstance(place.get("usage"), dict):
                    self._merge(_usage(place["usage"]))

    @property
    def usage(self) -> Usage:
        """The counts so far."""
        found = [*self._generations.values(), self._whole]
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in found),
            completion_tokens=sum(usage.completion_tokens for usage in found),
            cached_tokens=sum(usage.cached_tokens for usage in found),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in found),
        )

    def _merge(self, new: Usage) -> None:
        # A later event may only tell of the output.
        old = self._whole
        self._whole = Usage(
            prompt_tokens=new.prompt_tokens or old.prompt_tokens,
            completion_tokens=new.completion_tokens or old.completion_tokens,
            cached_tokens=new.cached_tokens or old.cached_tokens,
            reasoning_tokens=new.reasoning_tokens or old.reasoning_tokens,
        )


def _usage(value: dict[str, Any]) -> Usage:
    # Only Anthropic's dialect counts what was cached apart from the input.
    apart = _count(value, "cache_read_input_tokens") + _count(value, "cache_creation_input_tokens")
    return Usage(
        prompt_tokens=_count(value, "prompt_tokens", "input_tokens") + apart,
        completion_tokens=_count(value, "completion_tokens", "output_tokens"),
        cached_tokens=_count(_inner(value, "prompt_tokens_details", "input_tokens_details"), "cached_tokens")
        or _count(value, "cached_tokens", "cache_read_input_tokens"),
        reasoning_tokens=_count(_inner(value, "completion_tokens_details", "output_tokens_details"), "reasoning_tokens")
        or _count(value, "reasoning_tokens"),
    )


def _inner(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return next((value[name] for name in names if isinstance(value.get(name), dict)), {})


def _count(value: dict[str, Any], *names: str) -> int:
    found = next((value[name] for name in names if name in value), 0)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0
