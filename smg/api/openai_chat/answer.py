"""The buffered chat answer: the accumulated events as one ``chat.completion`` (spec text-pipeline 10)."""

from typing import Any

from smg.api.openai_parts import logprobs, usage
from smg.core.stream import Decoder
from smg.pipeline.accumulator import Answer, AnswerCall, AnswerChoice


def completion(identity: str, model: str, created: int, answer: Answer, decoder: Decoder, *, probs: bool) -> Any:
    """The body; ``probs`` tells whether log probabilities were asked for."""
    return {
        "id": identity,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [_choice(index, choice, decoder, probs) for index, choice in enumerate(answer.choices)],
        "usage": usage(answer.usage),
    }


def _choice(index: int, choice: AnswerChoice, decoder: Decoder, probs: bool) -> dict[str, Any]:
    assert choice.finish is not None
    out: dict[str, Any] = {
        "index": index,
        "message": _message(choice),
        "logprobs": logprobs(choice.logprobs, decoder) if probs else None,
        "finish_reason": choice.finish.reason,
    }
    if choice.finish.matched_stop is not None:
        out["matched_stop"] = choice.finish.matched_stop
    return out


def _message(choice: AnswerChoice) -> dict[str, Any]:
    content = choice.text or (None if choice.calls or choice.refusal else "")
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if choice.refusal:
        message["refusal"] = choice.refusal
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.calls:
        message["tool_calls"] = [_call(call) for call in choice.calls]
    if choice.annotations:
        message["annotations"] = choice.annotations
    return message


def _call(call: AnswerCall) -> dict[str, Any]:
    if call.kind == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": call.kind, "function": {"name": call.name, "arguments": call.arguments}}
