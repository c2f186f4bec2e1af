"""The buffered answer: the accumulated events as one message (spec agentic-apis 6.2)."""

from typing import Any

from smg.api.anthropic_messages.calls import call_id, call_input
from smg.api.anthropic_messages.ending import stop, usage
from smg.api.anthropic_messages.options import Display
from smg.api.anthropic_messages.types import MessageBody
from smg.pipeline.accumulator import Answer, AnswerChoice


def message(identity: str, model: str, answer: Answer, display: Display) -> MessageBody:
    """The body; ``display`` is what the client wants to see of the model's reasoning."""
    (choice,) = answer.choices
    reason, sequence = stop(choice.finish)
    return MessageBody(
        id=identity,
        type="message",
        role="assistant",
        model=model,
        content=_blocks(choice, display),
        stop_reason=reason,
        stop_sequence=sequence,
        usage=usage(answer.usage),
    )


def _blocks(choice: AnswerChoice, display: Display) -> list[dict[str, Any]]:
    """The blocks in the order in which the model wrote them; an answer that says nothing has one empty text."""
    out: list[dict[str, Any]] = []
    for block in choice.blocks:
        match block.kind:
            case "text" | "refusal":
                _say(out, block.text)
            case "reasoning" if display != "dropped":
                shown = block.text if display == "shown" else ""
                out.append({"type": "thinking", "thinking": shown, "signature": block.signature or ""})
            case "call":
                call = choice.calls[block.call]
                made = {"id": call_id(), "name": call.name, "input": call_input(call.arguments)}
                out.append({"type": "tool_use", **made})
    return out or [{"type": "text", "text": ""}]


def _say(blocks: list[dict[str, Any]], text: str) -> None:
    """Text goes on where reasoning that the client does not see has parted it."""
    if blocks and blocks[-1]["type"] == "text":
        blocks[-1]["text"] += text
    else:
        blocks.append({"type": "text", "text": text})
