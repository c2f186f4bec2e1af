"""The buffered answer: the accumulated blocks as output items."""

import msgspec

from smg.api.dialect import Meta
from smg.api.openai_responses.items import MESSAGE, REASONING, REFUSAL, TEXT, THOUGHT, Call, Item, Part
from smg.api.openai_responses.response import options, outcome, response
from smg.core.stream import Decoder
from smg.pipeline.accumulator import Answer, AnswerBlock, AnswerChoice

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
    for block in choice.blocks or [AnswerBlock("text")]:
        if block.kind == "call":
            items.append(_call(choice, block, identity, len(items)))
            continue
        kind = THOUGHT if block.kind == "reasoning" else MESSAGE
        # Text and refusal beside each other are one message.
        if not items or items[-1].kind != kind:
            items.append(Item(kind, identity, len(items)))
            items[-1].status = "completed"
        items[-1].parts.append(_part(block, decoder))
    return items


def _call(choice: AnswerChoice, block: AnswerBlock, identity: str, index: int) -> Call:
    call = choice.calls[block.call]
    item = Call(call.kind, identity, index, call.id, call.name)
    item.arguments.add(call.arguments)
    item.status = "completed" if call.complete else "incomplete"
    return item


def _part(block: AnswerBlock, decoder: Decoder) -> Part:
    part = Part(_PARTS[block.kind])
    part.add(block.text)
    part.annotations = block.annotations
    part.score(block.logprobs, decoder)
    return part
