"""OpenAI-style streams (chat, completions) as Events, however their bytes are cut (rule SPLIT; field case OA-02)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.core import ids
from smg.core.events import (
    Event,
    Failure,
    Finish,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from smg.engines.http.errors import message_of
from smg.engines.http.sse import Events, data_of
from smg.engines.transport.errors import presentable

_REASONS: Mapping[str, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_GIVEN_UP = frozenset({"abort", "error"})


class _Call(msgspec.Struct):
    """A tool call that runs: ``number`` counts calls of the choice; its arguments wait until it has a name."""

    number: int
    id: str = ""
    name: str = ""
    waiting: str = ""
    started: bool = False


class _Choice(msgspec.Struct):
    calls: dict[int, _Call] = msgspec.field(default_factory=dict)
    running: int | None = None
    finished: bool = False


class ChatEvents:
    """Decodes one stream of ``choices`` choices. ``failed`` is set once a Failure came: nothing counts after it.

    Usage is not told here (see ``usage``).
    """

    def __init__(self, choices: int = 1) -> None:
        self._events = Events()
        self._choices = [_Choice() for _ in range(choices)]
        self._done = False
        self.failed = False

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes and return the events they complete."""
        out: list[Event] = []
        for event in self._events.feed(data):
            out += self._event(data_of(event))
        return out

    def finish(self) -> list[Event]:
        """The stream has ended well: what is due for choices that nobody has finished."""
        out = self._event(data_of(self._events.rest))
        for index, choice in enumerate(self._choices):
            if not choice.finished and not self.failed:
                out += self._finish(index, "tool_calls" if choice.calls else "stop", None)
        return out

    def _event(self, data: bytes) -> list[Event]:
        if not data or self._done or self.failed:
            return []
        if data == b"[DONE]":
            self._done = True
            return []
        try:
            value = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeError):
            return self._fail("the engine sent what is not an answer")
        if not isinstance(value, dict):
            return self._fail("the engine sent what is not an answer")
        if value.get("error") or value.get("object") == "error":
            return self._fail(presentable(message_of(data)) or "the engine gave the generation up")
        out: list[Event] = []
        for choice in value.get("choices") or ():
            if isinstance(choice, dict) and not self.failed:
                out += self._choice(choice)
        return out

    def _choice(self, value: dict[str, Any]) -> list[Event]:
        index = value.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < len(self._choices):
            return self._fail("the engine sent an unknown choice")
        state = self._choices[index]
        if state.finished:
            return []
        delta = value.get("delta")
        out = self._delta(index, delta if isinstance(delta, dict) else {"content": value.get("text")})
        reason = value.get("finish_reason")
        if reason in _GIVEN_UP:
            return [*out, *self._fail("the engine gave the generation up")]
        if reason is not None:
            matched = value.get("matched_stop", value.get("stop_reason"))
            out += self._finish(index, _REASONS.get(reason, "stop"), matched)
        return out

    def _delta(self, index: int, delta: dict[str, Any]) -> list[Event]:
        out: list[Event] = []
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            out.append(ReasoningDelta(index, reasoning))
        for name, make in (("content", TextDelta), ("refusal", Refusal)):
            if isinstance(delta.get(name), str) and delta[name]:
                out.append(make(index, delta[name]))
        for call in delta.get("tool_calls") or ():
            if isinstance(call, dict):
                out += self._call(index, call)
        return out

    def _call(self, index: int, value: dict[str, Any]) -> list[Event]:
        state = self._choices[index]
        place = value.get("index")
        place = place if isinstance(place, int) else len(state.calls)
        out: list[Event] = []
        if place not in state.calls:
            out += self._end_call(index)
            state.calls[place] = _Call(len(state.calls))
            state.running = place
        call = state.calls[place]
        function = value.get("function")
        function = function if isinstance(function, dict) else {}
        call.id = call.id or str(value.get("id") or "")
        call.waiting += str(function.get("arguments") or "")
        if not call.started:
            call.name += str(function.get("name") or "")
            if not call.name:
                return out
            call.started = True
            out.append(ToolCallStart(index, call.number, call.id or ids.tool_call_id(), call.name))
        if call.waiting:
            out.append(ToolCallDelta(index, call.number, call.waiting))
            call.waiting = ""
        return out

    def _end_call(self, index: int, *, complete: bool = True) -> list[Event]:
        state = self._choices[index]
        place, state.running = state.running, None
        if place is None or not state.calls[place].started:
            return []
        return [ToolCallEnd(index, state.calls[place].number, complete)]

    def _finish(self, index: int, reason: str, matched: object) -> list[Event]:
        self._choices[index].finished = True
        ends = self._end_call(index, complete=reason != "length")
        return [*ends, Finish(index, reason, matched if isinstance(matched, int | str) else None)]

    def _fail(self, message: str) -> list[Event]:
        self.failed = True
        return [Failure("worker_stream_failed", message, 502)]
