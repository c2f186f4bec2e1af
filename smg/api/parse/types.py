"""The wire types of both routes."""

import msgspec

from smg.api.openai_chat.types import Tools


class FunctionCallBody(msgspec.Struct):
    """``text`` as a model wrote it; ``tool_call_parser`` is a parser's name, by default the model's own.

    ``tools`` are those the model was offered: they tell the types of arguments.
    """

    text: str
    tool_call_parser: str | None = None
    tools: Tools | None = None
    model: str | None = None


class ParsedFunction(msgspec.Struct):
    """``arguments`` is JSON text."""

    name: str
    arguments: str


class ParsedCall(msgspec.Struct):
    """``complete`` is false when the text broke off inside the call."""

    id: str
    type: str
    function: ParsedFunction
    complete: bool


class ParsedFunctionCalls(msgspec.Struct):
    """``remaining_text`` is what belongs to no call."""

    remaining_text: str
    tool_calls: list[ParsedCall]
    success: bool


class ReasoningBody(msgspec.Struct):
    """``text`` as a model wrote it; ``reasoning_parser`` is a parser's name, by default the model's own.

    ``in_reasoning``: the prompt had opened the reasoning already; by default as for a prompt that says nothing.
    """

    text: str
    reasoning_parser: str | None = None
    model: str | None = None
    in_reasoning: bool | None = None


class ParsedReasoning(msgspec.Struct):
    normal_text: str
    reasoning_text: str
    success: bool
