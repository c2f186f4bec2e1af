"""Canonical messages and tools to the plain dicts a chat template reads (spec text-pipeline 8)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from smg.core.errors import bad_request
from smg.core.request import (
    INPUT,
    MediaPart,
    Message,
    Part,
    RawPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    Tool,
    ToolCall,
)
from smg.text.call_format import CallFormat
from smg.text.content_format import ContentFormat
from smg.text.media import entry, mark

# What joins the text parts of a message when the template wants one string. Parts of a tool result or of an earlier
# answer are pieces of one text; those of users are separate paragraphs.
_SEPARATORS = {"tool": "", "assistant": ""}


class Forms(msgspec.Struct, frozen=True):
    """How one template wants its messages; ``placeholders`` are of the kinds of media that it may be given."""

    content: ContentFormat = ContentFormat()
    calls: CallFormat = CallFormat()
    placeholders: Mapping[str, str] = {}


def to_dicts(messages: Sequence[Message], forms: Forms) -> list[dict[str, Any]]:
    """Convert ``messages``.

    Raises:
        GatewayError: 400, with the field's path, for a part this model has no use for and for arguments of an earlier
            call that are no JSON object although the template needs one.
    """
    return [_message(message, forms, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Message, forms: Forms, path: str) -> dict[str, Any]:
    out: dict[str, Any] = {**message.extra, "role": message.role}
    out["content"] = _content(message, forms, f"{path}.content")
    if message.name is not None:
        out["name"] = message.name
    reasoning = reasoning_text(message)
    if reasoning:
        # All names that templates read it by. Harmony's, the last one, is an error beside both calls and content.
        names = ("reasoning_content", "reasoning", "thinking")
        out |= dict.fromkeys(names[:-1] if message.tool_calls and out["content"] else names, reasoning)
    if message.tool_calls:
        out["tool_calls"] = [
            _call(call, forms.calls, call.path or f"{path}.tool_calls[{index}].function.arguments")
            for index, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    return out


def reasoning_text(message: Message) -> str:
    """The reasoning of an earlier turn: its own field, and reasoning parts, one below the other."""
    parts = message.content
    if not isinstance(parts, list):
        return message.reasoning or ""
    texts = [message.reasoning or "", *(part.text for part in parts if isinstance(part, ReasoningPart))]
    return "\n".join(text for text in texts if text)


def content_text(message: Message, path: str, placeholders: Mapping[str, str] = {}) -> str:
    """The message's text as one string, marks of its media in front (``text.media``).

    Raises:
        GatewayError: 400 for a part that is neither text nor of ``placeholders``; ``path`` is where the content is.
    """
    if not isinstance(message.content, list):
        return message.content or ""
    marks, texts = [], []
    for index, part in enumerate(message.content):
        if isinstance(part, MediaPart):
            marks.append(mark(part, placeholders, f"{path}[{index}]"))
        elif (found := _part_text(part, f"{path}[{index}]")) is not None:
            texts.append(found)
    text = _SEPARATORS.get(message.role, "\n").join(texts)
    return "\n".join([*marks, text] if text else marks)


def _content(message: Message, forms: Forms, path: str) -> Any:
    role = message.role if message.role != "developer" else "system"
    if isinstance(message.content, list) and role in forms.content.parts:
        parts = [_part(part, forms.placeholders, f"{path}[{index}]") for index, part in enumerate(message.content)]
        kept = [part for part in parts if part is not None]
        if kept:
            return kept
    text = content_text(message, path, forms.placeholders)
    if not text and message.role == "assistant":
        return None if forms.calls.null else ""
    return text if role in forms.content.strings else [{"type": "text", "text": text}]


def _part(part: Part, placeholders: Mapping[str, str], path: str) -> dict[str, Any] | None:
    if isinstance(part, MediaPart):
        return entry(part, placeholders, path)
    text = _part_text(part, path)
    return None if text is None else {"type": "text", "text": text}


def _part_text(part: TextPart | RefusalPart | ReasoningPart | RawPart, path: str) -> str | None:
    match part:
        case TextPart() | RefusalPart():
            return part.text
        case ReasoningPart():
            return None
        case RawPart():
            # Not handed to templates that take lists: most leave out what they do not know.
            raise bad_request(f"this model does not take content parts of type '{part.type}'", f"{path}.type")


def _call(call: ToolCall, format: CallFormat, path: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call, format, path)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(call: ToolCall, format: CallFormat, path: str) -> Any:
    if call.kind != "function":
        wrapped = {INPUT: call.arguments}
        return wrapped if format.objects else json.dumps(wrapped, ensure_ascii=False)
    text = call.arguments.strip()
    if text in ("", "null"):
        return {} if format.objects else "{}"
    if not format.objects:
        return call.arguments
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    if format.texts:
        return call.arguments
    # No other form of them would be what the model has learnt to read (spec text-pipeline 8).
    message = "this model's prompt takes a tool call's arguments as a JSON object; leave out a call that was cut off"
    raise bad_request(message, path)


def tools_to_dicts(tools: Sequence[Tool], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Tools as ``{type, function}`` objects, only those in ``names`` when it is not empty.

    A tool the client gave in that shape is passed on as it is, unknown fields included.
    """
    return [_tool(tool) for tool in tools if not names or tool.name in names]


def _tool(tool: Tool) -> dict[str, Any]:
    if isinstance(tool.raw.get("function"), dict):
        return tool.raw
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.kind != "function":
        function["parameters"] = parameters_of(tool)
    elif tool.parameters is not None:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def parameters_of(tool: Tool) -> dict[str, Any]:
    """A custom tool's input as the parameters of a function, with its grammar in words."""
    if tool.grammar is None:
        return tool.schema
    what = (
        "a Lark grammar, from its rule 'start'" if tool.grammar.syntax == "lark" else "a regular expression, as a whole"
    )
    words = f"Text, written as it is, that matches {what}:\n{tool.grammar.definition}"
    return {**tool.schema, "properties": {INPUT: {"type": "string", "description": words}}}
