"""Folds events into a whole answer, for buffered responses, storage and budgets."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from smg.core.batch import TokenLogprobs
from smg.core.errors import GatewayError
from smg.core.events import (
    Annotation,
    Event,
    Failure,
    Finish,
    PromptLogprobs,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)


class AnswerCall(msgspec.Struct):
    """A tool call of the answer; ``complete`` is False when the output broke off inside it."""

    id: str
    name: str
    arguments: str = ""
    kind: str = "function"
    complete: bool = True


class Span(msgspec.Struct):
    """A stretch of a choice that is of one ``kind``: ``text``, ``reasoning``, ``refusal``, or call number ``call``.

    ``text`` is what it says (empty for a call), ``signature`` that of a block of reasoning, where there is one.
    ``logprobs`` and ``annotations`` are those of text.
    """

    kind: str
    text: str = ""
    signature: str | None = None
    call: int = 0
    logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    annotations: list[dict[str, object]] = msgspec.field(default_factory=list)


class AnswerChoice(msgspec.Struct):
    """One choice. ``logprobs`` and ``ids`` are in token order, whatever the tokens became.

    ``spans`` are text, reasoning and calls in the order they came in; ``text`` and ``reasoning`` join those of a kind.
    ``prompt_logprobs`` has a row per prompt token, when they were asked for.
    """

    text: str = ""
    reasoning: str = ""
    signature: str | None = None
    refusal: str = ""
    spans: list[Span] = msgspec.field(default_factory=list)
    calls: list[AnswerCall] = msgspec.field(default_factory=list)
    annotations: list[dict[str, object]] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    ids: list[int] = msgspec.field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    finish: Finish | None = None


class Answer(msgspec.Struct):
    """A whole answer: choices by index, and the final usage."""

    choices: list[AnswerChoice] = msgspec.field(default_factory=list)
    usage: Usage = Usage()


_Scored: TypeAlias = TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta
_Other: TypeAlias = ReasoningDelta | ToolCallStart | ToolCallDelta | ToolCallEnd | Refusal | Annotation | PromptLogprobs

# Those of the others that have ids and log probabilities; a union of types would be made anew for each event.
_WITH_IDS = (ReasoningDelta, ToolCallStart, ToolCallDelta)


class Accumulator:
    """Feed it events, read ``answer``. A Failure event raises the error it stands for."""

    def __init__(self, n: int = 1) -> None:
        self.answer = Answer([AnswerChoice() for _ in range(n)])
        # The pieces of each choice's spans.
        self._pieces: list[list[list[str]]] = [[] for _ in range(n)]
        self._arguments: list[dict[int, list[str]]] = [{} for _ in range(n)]

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            # What nearly every event of an answer is comes first.
            if isinstance(event, TextDelta):
                self._text(event)
            elif isinstance(event, Usage):
                self.answer.usage = event
            elif isinstance(event, Finish):
                self.answer.choices[event.choice].finish = event
            elif isinstance(event, Failure):
                raise GatewayError(
                    event.code, event.message, status=event.status, retry_after=event.retry_after, param=event.param
                )
            else:
                self._more(event)

    def _text(self, event: TextDelta) -> None:
        if event.logprobs is None and event.ids is None:
            self._add(event.choice, "text", event.text)
            return
        self._score(event)
        self._add(event.choice, "text", event.text, event.logprobs or ())

    def _score(self, event: _Scored) -> None:
        choice = self.answer.choices[event.choice]
        if event.logprobs is not None:
            choice.logprobs += event.logprobs
        if event.ids is not None:
            choice.ids += event.ids

    def _more(self, event: _Other) -> None:
        """Take what is neither text nor the end."""
        choice = self.answer.choices[event.choice]
        if isinstance(event, _WITH_IDS):
            self._score(event)
        match event:
            case ReasoningDelta():
                self._add(event.choice, "reasoning", event.text)
                if event.signature is not None:
                    choice.signature = event.signature
                    self._sign(choice, event.signature)
            case ToolCallStart():
                self._span(event.choice, "call").call = event.index
                choice.calls.append(AnswerCall(event.id, event.name, kind=event.kind, complete=False))
            case ToolCallDelta():
                self._arguments[event.choice].setdefault(event.index, []).append(event.arguments)
            case ToolCallEnd():
                choice.calls[event.index].complete = event.complete
            case Refusal():
                choice.refusal += event.text
                self._add(event.choice, "refusal", event.text)
            case Annotation():
                choice.annotations.append(event.annotation)
                self._span(event.choice, "text").annotations.append(event.annotation)
            case PromptLogprobs():
                choice.prompt_logprobs += event.rows

    def _add(self, choice: int, kind: str, text: str, logprobs: Sequence[TokenLogprobs] = ()) -> None:
        """Put ``text`` behind what there is of ``choice``; empty text begins no span."""
        spans = self.answer.choices[choice].spans
        if text or (logprobs and spans and spans[-1].kind == kind):
            self._span(choice, kind).logprobs += logprobs
            self._pieces[choice][-1].append(text)

    def _span(self, choice: int, kind: str) -> Span:
        """The last span, or a new one where that is another kind's; every call has its own."""
        spans = self.answer.choices[choice].spans
        # What is signed is whole: more reasoning behind it is another block.
        if not spans or spans[-1].kind != kind or kind == "call" or spans[-1].signature is not None:
            spans.append(Span(kind))
            self._pieces[choice].append([])
        return spans[-1]

    def _sign(self, choice: AnswerChoice, signature: str) -> None:
        """A signature comes with the last delta of its block, or behind it."""
        if choice.spans and choice.spans[-1].kind == "reasoning":
            choice.spans[-1].signature = signature

    def finish(self) -> Answer:
        """Join what was collected and return the answer."""
        for index, choice in enumerate(self.answer.choices):
            for span, pieces in zip(choice.spans, self._pieces[index], strict=True):
                span.text = "".join(pieces)
                if span.kind == "text":
                    choice.text += span.text
                elif span.kind == "reasoning":
                    choice.reasoning += span.text
            for number, pieces in self._arguments[index].items():
                choice.calls[number].arguments = "".join(pieces)
        return self.answer
