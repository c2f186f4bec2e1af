"""Folds events into a whole answer, for buffered responses, storage and budgets."""

from collections.abc import Iterable, Sequence

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


class AnswerBlock(msgspec.Struct):
    """What of the output stands together: ``kind`` is text, reasoning, refusal or call.

    ``call`` is a call's place among ``AnswerChoice.calls``; ``logprobs`` and ``annotations`` are those of text, and
    ``signature`` that of reasoning, where there is one.
    """

    kind: str
    text: str = ""
    call: int = 0
    logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    annotations: list[dict[str, object]] = msgspec.field(default_factory=list)
    signature: str | None = None


class AnswerChoice(msgspec.Struct):
    """One choice. ``logprobs`` and ``ids`` are in token order, whatever the tokens became.

    ``prompt_logprobs`` has a row per prompt token, when they were asked for. ``blocks`` are text, reasoning and calls
    once more, in their order.
    """

    text: str = ""
    reasoning: str = ""
    signature: str | None = None
    refusal: str = ""
    calls: list[AnswerCall] = msgspec.field(default_factory=list)
    annotations: list[dict[str, object]] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    ids: list[int] = msgspec.field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    finish: Finish | None = None
    blocks: list[AnswerBlock] = msgspec.field(default_factory=list)


class Answer(msgspec.Struct):
    """A whole answer: choices by index, and the final usage."""

    choices: list[AnswerChoice] = msgspec.field(default_factory=list)
    usage: Usage = Usage()


class Accumulator:
    """Feed it events, read ``answer``. A Failure event raises the error it stands for."""

    def __init__(self, n: int = 1) -> None:
        self.answer = Answer([AnswerChoice() for _ in range(n)])
        # Of each choice, the pieces of each block's text.
        self._pieces: list[list[list[str]]] = [[] for _ in range(n)]
        self._arguments: list[dict[int, list[str]]] = [{} for _ in range(n)]

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case TextDelta(logprobs=None, ids=None):
                    self._add(event.choice, "text", event.text)
                case Usage():
                    self.answer.usage = event
                case Failure():
                    raise GatewayError(
                        event.code,
                        event.message,
                        status=event.status,
                        retry_after=event.retry_after,
                        param=event.param,
                    )
                case _:
                    self._choice(event)

    def _choice(self, event: Event) -> None:
        assert not isinstance(event, Usage | Failure)
        choice = self.answer.choices[event.choice]
        if isinstance(event, TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta):
            if event.logprobs is not None:
                choice.logprobs += event.logprobs
            if event.ids is not None:
                choice.ids += event.ids
        match event:
            case TextDelta():
                self._add(event.choice, "text", event.text, event.logprobs or ())
            case ReasoningDelta():
                self._add(event.choice, "reasoning", event.text)
                self._sign(choice, event.signature)
            case ToolCallStart():
                self._block(event.choice, "call").call = len(choice.calls)
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
                self._block(event.choice, "text").annotations.append(event.annotation)
            case PromptLogprobs():
                choice.prompt_logprobs += event.rows
            case Finish():
                choice.finish = event

    def _add(self, choice: int, kind: str, text: str, logprobs: Sequence[TokenLogprobs] = ()) -> None:
        """Add to the last block, or begin one, for which it takes text."""
        blocks = self.answer.choices[choice].blocks
        if text or (blocks and blocks[-1].kind == kind and blocks[-1].signature is None):
            self._block(choice, kind).logprobs += logprobs
            self._pieces[choice][-1].append(text)

    def _block(self, choice: int, kind: str) -> AnswerBlock:
        """The last block, or a new one where that is another kind's; every call has its own."""
        blocks = self.answer.choices[choice].blocks
        # What is signed is whole: more reasoning behind it is another block.
        if not blocks or blocks[-1].kind != kind or kind == "call" or blocks[-1].signature is not None:
            blocks.append(AnswerBlock(kind))
            self._pieces[choice].append([])
        return blocks[-1]

    def _sign(self, choice: AnswerChoice, signature: str | None) -> None:
        """A signature comes with the last delta of its block, or behind it."""
        choice.signature = signature or choice.signature
        if signature is not None and choice.blocks and choice.blocks[-1].kind == "reasoning":
            choice.blocks[-1].signature = signature

    def finish(self) -> Answer:
        """Join what was collected and return the answer."""
        for index, choice in enumerate(self.answer.choices):
            for block, texts in zip(choice.blocks, self._pieces[index], strict=True):
                block.text = "".join(texts)
            choice.text = "".join(block.text for block in choice.blocks if block.kind == "text")
            choice.reasoning = "".join(block.text for block in choice.blocks if block.kind == "reasoning")
            for number, pieces in self._arguments[index].items():
                choice.calls[number].arguments = "".join(pieces)
        return self.answer
