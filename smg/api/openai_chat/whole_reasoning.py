"""A streamed chat answer whose reasoning comes in one piece (``stream_reasoning: false``)."""

from collections.abc import Iterator

from smg.api.dialect import Meta
from smg.api.openai_chat.decode import ChatOptions
from smg.api.openai_chat.encode import ChatStream
from smg.core.errors import GatewayError
from smg.core.events import Event, Failure, ReasoningDelta, Usage
from smg.core.stream import ByteTemplate, TextKind

_NOTHING = ByteTemplate((b"",), ())


class WholeReasoningStream(ChatStream):
    """A ``ChatStream`` that holds each block of reasoning until something else follows it, or the stream breaks.

    It implements ``pipeline.choice.Recorder``: of reasoning that goes direct nothing is written yet.
    """

    def __init__(self, identity: str, meta: Meta, options: ChatOptions) -> None:
        super().__init__(identity, meta, options)
        self._held: dict[int, list[ReasoningDelta]] = {}

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """As that of any chat stream, but nothing for reasoning; None for what follows reasoning that is held."""
        if choice in self._held and kind != "reasoning":
            return None
        template = super().template(choice, kind, call)
        return _NOTHING if template is not None and kind == "reasoning" else template

    def written(self, choice: int, kind: TextKind, call: int, text: str) -> None:
        if kind == "reasoning":
            self._hold(ReasoningDelta(choice, text))

    def events(self, events: list[Event]) -> bytes:
        return super().events(list(self._in_order(events)))

    def failure(self, error: GatewayError) -> bytes:
        held: list[Event] = [self._whole(choice) for choice in sorted(self._held)]
        return super().events(held) + super().failure(error)

    def _in_order(self, events: list[Event]) -> Iterator[Event]:
        for event in events:
            if isinstance(event, ReasoningDelta):
                self._hold(event)
                continue
            if not isinstance(event, Usage | Failure) and event.choice in self._held:
                yield self._whole(event.choice)
            yield event

    def _hold(self, delta: ReasoningDelta) -> None:
        self._held.setdefault(delta.choice, []).append(delta)

    def _whole(self, choice: int) -> ReasoningDelta:
        held = self._held.pop(choice)
        rows = tuple(row for event in held for row in event.logprobs or ())
        return ReasoningDelta(choice, "".join(event.text for event in held), logprobs=rows or None)
