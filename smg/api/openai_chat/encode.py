"""Encodes a streamed chat answer: ``chat.completion.chunk`` objects as server-sent events (spec text-pipeline 11).

A chunk is put together from bytes that are made once per response, so that the events path and the direct path (the
StreamTable fills ``template`` by itself) cannot differ.
"""

from typing import Any

import msgspec

from smg._native import sse
from smg.api.dialect import Meta
from smg.api.openai_chat.decode import ChatOptions
from smg.api.openai_parts import logprobs, usage
from smg.core.batch import TokenLogprobs
from smg.core.errors import GatewayError, openai_shape
from smg.core.events import (
    Annotation,
    Event,
    Finish,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from smg.core.stream import ByteTemplate, Counter, TextKind

_encode = msgspec.json.encode


class ChatStream:
    """Implements ``api.dialect.StreamEncoder``."""

    def __init__(self, identity: str, meta: Meta, options: ChatOptions) -> None:
        self.counter = Counter()
        self._n = meta.request.n
        self._options = options
        self._decoder = meta.decoder
        self._usage = meta.usage
        self._custom: set[tuple[int, int]] = set()
        head = {"id": identity, "object": "chat.completion.chunk", "created": meta.created, "model": meta.model}
        self._head = b"data: " + _encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if options.usage.include else b"]}\n\n"
        self._text = [self._delta_template(choice, b'"content":"') for choice in range(self._n)]

    def preamble(self, *, direct: bool) -> bytes:
        """The role chunk of every choice."""
        delta = b'{"role":"assistant","content":""}'
        return b"".join(self._chunk(choice, delta) for choice in range(self._n))

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """Bytes of a chunk with content, reasoning or arguments; None when each chunk carries running usage."""
        if self._options.usage.continuous:
            return None
        if kind == "text":
            return self._text[choice]
        if kind == "reasoning":
            return self._delta_template(choice, b'"reasoning_content":"')
        if (choice, call) in self._custom:
            return self._delta_template(choice, b'"tool_calls":[{"index":%d,"custom":{"input":"' % call, b"}}]")
        return self._delta_template(choice, b'"tool_calls":[{"index":%d,"function":{"arguments":"' % call, b"}}]")

    def events(self, events: list[Event]) -> bytes:
        for event in events:
            if isinstance(event, Usage):
                self._usage = event
        return b"".join(self._event(event) for event in events)

    def failure(self, error: GatewayError) -> bytes:
        return b"data: " + _encode(openai_shape(error)) + b"\n\n"

    def closing(self) -> bytes:
        """The usage chunk, if it was asked for, and the end marker (field case OA-03)."""
        done = b"data: [DONE]\n\n"
        if not self._options.usage.include:
            return done
        return self._head + b'],"usage":' + _encode(usage(self._usage)) + b"}\n\n" + done

    def keepalive(self) -> bytes:
        return b": ping\n\n"

    def _event(self, event: Event) -> bytes:
        match event:
            case TextDelta(logprobs=None):
                if not event.text:
                    return b""
                template = self.template(event.choice)
                if template is not None:
                    return sse.fill(template.pieces, template.holes, event.text, 0)
                return self._chunk(event.choice, b'{"content":"' + sse.escape(event.text) + b'"}')
            case TextDelta():
                return self._chunk(event.choice, b'{"content":"' + sse.escape(event.text) + b'"}', event.logprobs)
            case ReasoningDelta():
                if not event.text and event.logprobs is None:
                    return b""
                delta = b'{"reasoning_content":"' + sse.escape(event.text) + b'"}'
                return self._chunk(event.choice, delta, event.logprobs)
            case ToolCallStart():
                if event.kind == "custom":
                    self._custom.add((event.choice, event.index))
                return self._chunk(event.choice, _call_start(event), event.logprobs)
            case ToolCallDelta():
                custom = (event.choice, event.index) in self._custom
                return self._chunk(event.choice, _call_delta(event, custom), event.logprobs)
            case Refusal():
                return self._chunk(event.choice, _encode({"refusal": event.text}))
            case Annotation():
                return self._chunk(event.choice, _encode({"annotations": [event.annotation]}))
            case Finish():
                return self._finish(event)
        return b""

    def _finish(self, event: Finish) -> bytes:
        extra = b"" if event.matched_stop is None else b',"matched_stop":' + _encode(event.matched_stop)
        reason = _encode(event.reason)
        body = b'{"index":%d,"delta":{},"logprobs":null,"finish_reason":%b%b}' % (event.choice, reason, extra)
        return self._head + body + self._close()

    def _chunk(self, choice: int, delta: bytes, rows: tuple[TokenLogprobs, ...] | None = None) -> bytes:
        probabilities = b"null" if rows is None else _encode(logprobs(rows, self._decoder))
        body = b'{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":null}' % (choice, delta, probabilities)
        return self._head + body + self._close()

    def _close(self) -> bytes:
        if self._options.usage.continuous:
            return b'],"usage":' + _encode(usage(self._usage)) + b"}\n\n"
        return self._tail

    def _delta_template(self, choice: int, before: bytes, after: bytes = b"") -> ByteTemplate:
        start = self._head + b'{"index":%d,"delta":{%b' % (choice, before)
        end = b'"%b},"logprobs":null,"finish_reason":null}%b' % (after, self._tail)
        return ByteTemplate((start, end), ("text",))


def _call_start(event: ToolCallStart) -> bytes:
    body: dict[str, Any] = {"index": event.index, "id": event.id, "type": event.kind}
    if event.kind == "custom":
        body["custom"] = {"name": event.name, "input": ""}
    else:
        body["function"] = {"name": event.name, "arguments": ""}
    return _encode({"tool_calls": [body]})


def _call_delta(event: ToolCallDelta, custom: bool) -> bytes:
    where = b'"custom":{"input":"' if custom else b'"function":{"arguments":"'
    start = b'{"tool_calls":[{"index":%d,%b' % (event.index, where)
    return start + sse.escape(event.arguments) + b'"}}]}'
