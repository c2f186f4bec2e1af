"""Encodes a streamed answer: named server-sent events, a block for each stretch of one kind (spec agentic-apis 6.3).

Blocks never overlap: what is of another kind closes the one that is open. Hot events are put together from bytes that
are made once per block, so that the events path and the direct path cannot differ.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from smg._native import sse
from smg.api.anthropic_messages.calls import call_id
from smg.api.anthropic_messages.ending import stop, usage
from smg.api.anthropic_messages.errors import shape
from smg.api.anthropic_messages.options import Display
from smg.api.anthropic_messages.types import MessageBody
from smg.api.dialect import Meta
from smg.core.errors import GatewayError
from smg.core.events import (
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

Block: TypeAlias = Literal["text", "thinking", "tool_use"]

# The delta of each kind of block: its type, and the field that has the text.
_DELTAS: dict[Block, tuple[bytes, bytes]] = {
    "text": (b"text_delta", b"text"),
    "thinking": (b"thinking_delta", b"thinking"),
    "tool_use": (b"input_json_delta", b"partial_json"),
}
# Reasoning that the client does not see.
_SILENT = ByteTemplate((b"",), ())
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessageStream:
    """Implements ``api.dialect.StreamEncoder``."""

    def __init__(self, identity: str, request_id: str, meta: Meta, display: Display) -> None:
        self.counter = Counter()
        self._identity = identity
        self._request_id = request_id
        self._model = meta.model
        self._display = display
        self._usage = meta.usage
        self._finish: Finish | None = None
        self._begun = False
        # The block that is open, the number of the last one, and the number of the call that it is.
        self._open: Block | None = None
        self._index = -1
        self._call = -1
        self._template = _template("text", 0)

    def preamble(self, *, direct: bool) -> bytes:
        """The start of the message, with the counts of its prompt (case MS-01)."""
        self._begun = True
        body = MessageBody(self._identity, "message", "assistant", self._model, [], None, None, usage(self._usage))
        start = _event("message_start", message=body) + _PING
        return start + (self._to("text") if direct else b"")

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """Bytes of a delta of the block that is open; None where a block has to be opened first.

        Asked before the preamble, text will go direct from the beginning, and its block is opened there.
        """
        match kind:
            case "text":
                return self._template if self._open == "text" or not self._begun else None
            case "reasoning" if self._display == "dropped":
                return _SILENT
            case "reasoning":
                if self._open != "thinking":
                    return None
                return self._template if self._display == "shown" else _SILENT
        return self._template if self._open == "tool_use" and self._call == call else None

    def events(self, events: list[Event]) -> bytes:
        return b"".join(self._one(event) for event in events)

    def failure(self, error: GatewayError) -> bytes:
        return b"event: error\ndata: " + msgspec.json.encode(shape(error, self._request_id)) + b"\n\n"

    def closing(self) -> bytes:
        """The end of the last block and of the message. An answer that says nothing has one empty text."""
        last = self._close() if self._index >= 0 else self._to("text") + self._close()
        reason, sequence = stop(self._finish)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        return last + _event("message_delta", delta=delta, usage=usage(self._usage)) + _event("message_stop")

    def keepalive(self) -> bytes:
        return _PING

    def _one(self, event: Event) -> bytes:
        match event:
            case TextDelta(text=text) | Refusal(text=text):
                return self._to("text") + self._delta(text) if text else b""
            case ReasoningDelta():
                return b"" if self._display == "dropped" else self._reasoning(event)
            case ToolCallStart():
                self._call = event.index
                return self._close() + self._start("tool_use", id=call_id(), name=event.name, input={})
            case ToolCallDelta():
                ours = self._open == "tool_use" and event.index == self._call
                return self._delta(event.arguments) if ours and event.arguments else b""
            case ToolCallEnd():
                return self._close() if self._open == "tool_use" else b""
            case Finish():
                self._finish = event
            case Usage():
                self._usage = event
        return b""

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        """A piece of reasoning; what is signed is whole, and ends its block."""
        out = b""
        if event.text:
            out += self._to("thinking") + (self._delta(event.text) if self._display == "shown" else b"")
        if event.signature is not None and self._open == "thinking":
            delta = {"type": "signature_delta", "signature": event.signature}
            out += _event("content_block_delta", index=self._index, delta=delta) + self._close()
        return out

    def _to(self, kind: Literal["text", "thinking"]) -> bytes:
        """Close the open block, if it is another one, and open one of ``kind``."""
        if self._open == kind:
            return b""
        empty = {"text": ""} if kind == "text" else {"thinking": "", "signature": ""}
        return self._close() + self._start(kind, **empty)

    def _start(self, kind: Block, **fields: Any) -> bytes:
        self._index += 1
        self._open = kind
        self._template = _template(kind, self._index)
        return _event("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event("content_block_stop", index=self._index)

    def _delta(self, text: str) -> bytes:
        return sse.fill(self._template.pieces, self._template.holes, text, 0)


def _template(kind: Block, index: int) -> ByteTemplate:
    delta, field = _DELTAS[kind]
    head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":"'
    return ByteTemplate((head % (index, delta, field), b'"}}\n\n'), ("text",))


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"type": name, **fields}))
