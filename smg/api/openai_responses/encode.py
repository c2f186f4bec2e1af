"""Encodes a streamed answer: named events with running numbers (spec agentic-apis 4.7 to 4.9).

Items are opened when something comes for them and closed when something else does; calls stay open until they end.
What ``…done`` repeats is collected from the events, and from what the StreamTable says it has written (``written``).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg._native import sse
from smg.api.dialect import Meta
from smg.api.openai_responses.items import (
    CUSTOM,
    FUNCTION,
    MESSAGE,
    REASONING,
    REFUSAL,
    TEXT,
    THOUGHT,
    Call,
    Item,
    Part,
)
from smg.api.openai_responses.response import options, outcome, response
from smg.core.errors import GatewayError
from smg.core.events import (
    Annotation,
    Event,
    Finish,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from smg.core.stream import ByteTemplate, Counter, TextKind

# Beginning of the names of a growing text's events.
_GROWING = {
    TEXT: "response.output_text",
    REFUSAL: "response.refusal",
    REASONING: "response.reasoning_text",
    FUNCTION: "response.function_call_arguments",
    CUSTOM: "response.custom_tool_call_input",
}
# What its last event calls the whole of it.
_WHOLE = {TEXT: "text", REFUSAL: "refusal", REASONING: "text", FUNCTION: "arguments", CUSTOM: "input"}
_PARTS: Mapping[str, str] = {"text": TEXT, "reasoning": REASONING}


class _Growing:
    """A text that grows: part ``number`` of an item's content or, for None, a call's arguments."""

    def __init__(self, item: Item, part: Part, number: int | None = None) -> None:
        self.item = item
        self.part = part
        self.kind = part.kind or item.kind
        self.place: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        if number is not None:
            self.place["content_index"] = number
        name = f"{_GROWING[self.kind]}.delta".encode()
        head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name)
        middle = b',%b,"delta":"' % msgspec.json.encode(self.place)[1:-1]
        end = b'","logprobs":[]}\n\n' if self.kind == TEXT else b'"}\n\n'
        self.template = ByteTemplate((head, middle, end), ("sequence", "text"))


class ResponsesStream:
    """Implements ``api.dialect.StreamEncoder`` and ``pipeline.choice.Recorder``."""

    def __init__(self, meta: Meta) -> None:
        self.counter = Counter()
        self._meta = meta
        self._id = options(meta).id
        self._usage = meta.usage
        self._finish: Finish | None = None
        self._begun = False
        self._items: list[Item] = []
        self._open: _Growing | None = None
        self._calls: dict[int, _Growing] = {}

    def preamble(self, *, direct: bool) -> bytes:
        self._begun = True
        names = ("response.created", "response.in_progress")
        head = b"".join(self._event(name, response=response(self._meta, "in_progress")) for name in names)
        return head + (self._to(TEXT) if direct else b"")

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """Bytes of a delta of what is open; None where something has to be opened first."""
        if not self._begun:
            # Text that goes direct from the beginning is that of the first item.
            return _Growing(Item(MESSAGE, self._id, 0), Part(TEXT), 0).template
        text = self._calls.get(call) if kind == "arguments" else self._open
        if text is None or text.kind != _PARTS.get(kind, text.kind):
            return None
        return text.template

    def written(self, choice: int, kind: TextKind, call: int, text: str) -> None:
        grown = self._calls[call] if kind == "arguments" else self._current()
        grown.part.add(text)

    def events(self, events: list[Event]) -> bytes:
        return b"".join(self._one(event) for event in events)

    def failure(self, error: GatewayError) -> bytes:
        """What is open is closed as incomplete; the last event has everything so far.

        Of a stream that an engine makes by itself nothing is known but that it broke.
        """
        if self._meta.forwarded:
            return self._event("error", code=error.code, message=error.message, param=error.param)
        head = b"" if self._begun else self.preamble(direct=False)
        head += self._close_all("incomplete")
        return head + self._event("response.failed", response=response(self._meta, "failed", self._items, error=error))

    def closing(self) -> bytes:
        status, incomplete = outcome(self._finish)
        # There is always an item, as there is in a buffered answer.
        last = b"" if self._items else self._to(TEXT)
        last += self._close_all(status)
        body = response(self._meta, status, self._items, self._usage, incomplete=incomplete)
        return last + self._event(f"response.{status}", response=body)

    def keepalive(self) -> bytes:
        return b": keep-alive\n\n"

    def _one(self, event: Event) -> bytes:
        match event:
            case TextDelta():
                return self._text(event)
            case ReasoningDelta(text=text) if text:
                return self._to(REASONING) + self._grow(self._current(), text)
            case Refusal(text=text) if text:
                return self._to(REFUSAL) + self._grow(self._current(), text)
            case ToolCallStart():
                return self._call(event)
            case ToolCallDelta(index=index, arguments=text) if text and index in self._calls:
                return self._grow(self._calls[index], text)
            case ToolCallEnd(index=index, complete=complete) if index in self._calls:
                return self._end_call(index, "completed" if complete else "incomplete")
            case Annotation():
                return self._annotation(event)
            case Finish():
                self._finish = event
            case Usage():
                self._usage = event
        return b""

    def _text(self, event: TextDelta) -> bytes:
        rows = event.logprobs or ()
        if not event.text and not (rows and self._is_open(TEXT)):
            return b""
        opened, text = self._to(TEXT), self._current()
        if not rows:
            return opened + self._grow(text, event.text)
        text.part.add(event.text)
        printed = text.part.score(rows, self._meta.decoder)
        return opened + self._event(f"{_GROWING[TEXT]}.delta", **text.place, delta=event.text, logprobs=printed)

    def _grow(self, text: _Growing, more: str) -> bytes:
        text.part.add(more)
        return sse.fill(text.template.pieces, text.template.holes, more, self.counter.take())

    def _annotation(self, event: Annotation) -> bytes:
        opened, text = self._to(TEXT), self._current()
        fields = {"annotation_index": len(text.part.annotations), "annotation": event.annotation}
        text.part.annotations.append(event.annotation)
        return opened + self._event("response.output_text.annotation.added", **text.place, **fields)

    def _call(self, event: ToolCallStart) -> bytes:
        closed = self._close("completed")
        call = Call(event.kind, self._id, len(self._items), event.id, event.name)
        self._items.append(call)
        self._calls[event.index] = _Growing(call, call.arguments)
        return closed + self._item("added", call)

    def _end_call(self, number: int, status: str) -> bytes:
        call = self._calls.pop(number)
        call.item.status = status
        return self._whole(call) + self._item("done", call.item)

    def _to(self, kind: str) -> bytes:
        """Open a part of ``kind`` unless one is open, and close what is open instead."""
        if self._is_open(kind):
            return b""
        wanted = THOUGHT if kind == REASONING else MESSAGE
        if self._open is not None and self._open.item.kind == wanted:
            out, item = self._close_part(self._open), self._open.item
        else:
            out, item = self._close("completed"), Item(wanted, self._id, len(self._items))
            self._items.append(item)
            out += self._item("added", item)
        self._open = _Growing(item, Part(kind), len(item.parts))
        item.parts.append(self._open.part)
        return out + self._event("response.content_part.added", **self._open.place, part=self._open.part.body())

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open.kind == kind

    def _current(self) -> _Growing:
        assert self._open is not None, "_to() comes first"
        return self._open

    def _close_all(self, status: str) -> bytes:
        calls = b"".join(self._end_call(number, "incomplete") for number in sorted(self._calls))
        return calls + self._close(status)

    def _close(self, status: str) -> bytes:
        """Close the message or the reasoning that is open."""
        if self._open is None:
            return b""
        out, item = self._close_part(self._open), self._open.item
        item.status = status
        self._open = None
        return out + self._item("done", item)

    def _close_part(self, text: _Growing) -> bytes:
        return self._whole(text) + self._event("response.content_part.done", **text.place, part=text.part.body())

    def _whole(self, text: _Growing) -> bytes:
        fields: dict[str, Any] = {_WHOLE[text.kind]: text.part.text}
        if text.kind == TEXT:
            fields["logprobs"] = text.part.logprobs
        return self._event(f"{_GROWING[text.kind]}.done", **text.place, **fields)

    def _item(self, what: str, item: Item) -> bytes:
        return self._event(f"response.output_item.{what}", output_index=item.index, item=item.body())

    def _event(self, name: str, **fields: Any) -> bytes:
        data = msgspec.json.encode({"type": name, "sequence_number": self.counter.take(), **fields})
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
