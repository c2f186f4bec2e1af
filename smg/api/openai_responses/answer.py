"""The buffered answer: the accumulated spans as output items."""

import msgspec

from smg.api.dialect import Meta
from smg.api.openai_responses.items import MESSAGE, REASONING, REFUSAL, TEXT, THOUGHT, Call, Item, Part
from smg.api.openai_responses.response import options, outcome, response
from smg.core.stream import Decoder
from smg.pipeline.accumulator import Answer, AnswerChoice, Span

_PARTS = {"text": TEXT, "refusal": REFUSAL, "reasoning": REASONING}


def answered(meta: Meta, answer: Answer) -> msgspec.Raw:
    """The body."""
    (choice,) = answer.choices
    status, incomplete = outcome(choice.finish)
    items = _items(choice, options(meta).id, meta.decoder)
    if items and not isinstance(items[-1], Call):
        items[-1].status = status
    return response(meta, status, items, answer.usage, incomplete=incomplete)


def _items(choice: AnswerChoice, identity: str, decoder: Decoder) -> list[Item]:
    items: list[Item] = []
    for span in choice.spans or [Span("text")]:
        if span.kind == "call":
            items.append(_call(choice, span, identity, len(items)))
            continue
        kind = THOUGHT if span.kind == "reasoning" else MESSAGE
        # Text and refusal beside each other are one message.
        if not items or items[-1].kind != kind:
            items.append(Item(kind, identity, len(items)))
            items[-1].status = "completed"
        items[-1].parts.append(_part(span, decoder))
    return items


def _call(choice: AnswerChoice, span: Span, identity: str, index: int) -> Call:
    call = choice.calls[span.call]
    item = Call(call.kind, identity, index, call.id, call.name)
    item.arguments.add(call.arguments)
    item.status = "completed" if call.complete else "incomplete"
    return item


def _part(span: Span, decoder: Decoder) -> Part:
    part = Part(_PARTS[span.kind])
    part.add(span.text)
    part.annotations = span.annotations
    part.score(span.logprobs, decoder)
    return part
