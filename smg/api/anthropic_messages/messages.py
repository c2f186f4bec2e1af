"""Decodes the conversation into canonical turns (spec agentic-apis 6.3; text-pipeline 14)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from smg.api.anthropic_messages import types
from smg.api.anthropic_messages.blocks import BLOCKS, misplaced, parts, said
from smg.core.errors import bad_request
from smg.core.request import Message, Part, ReasoningPart, TextPart, ToolCall, arguments_text
from smg.core.wire import Union, Unknown

# What a well-known client puts first into its system text: telemetry, other with each request (field case MS-06).
TELEMETRY = "x-anthropic-billing-header"

_TURNS: Union[Any] = Union(dict.fromkeys(("user", "assistant", "system"), types.Turn), tag="role")

# A turn of the body: its role, its content, and where it is.
Given: TypeAlias = tuple[str, str | list[Any], str]


def system(value: str | list[Any] | None) -> list[Message]:
    """Decode the system text: one message, or none. Raises GatewayError naming the block."""
    if value is None:
        return []
    if isinstance(value, str):
        text = _without_telemetry(value)
        return [Message("system", text)] if text else []
    found = list(_texts(value, "system"))
    if found:
        found[0] = TextPart(_without_telemetry(found[0].text))
    kept: list[Part] = [part for part in found if part.text]
    return [Message("system", kept)] if kept else []


def _without_telemetry(text: str) -> str:
    return text.partition("\n")[2] if text.startswith(TELEMETRY) else text


def messages(values: list[Any] | None) -> list[Message]:
    """Decode ``messages``; neighbours of one role become one turn. Raises GatewayError naming the field."""
    if not values:
        raise bad_request("at least one message is needed", "messages")
    given = [
        _given(values[index], wire, f"messages[{index}]") for index, wire in enumerate(_TURNS.many(values, "messages"))
    ]
    out: list[Message] = []
    names: dict[str, str] = {}
    for role, group in groupby(given, key=lambda turn: turn[0]):
        turns = list(group)
        match role:
            case "user":
                out += _user(turns, names)
            case "assistant":
                out.append(_assistant(turns))
                names.update((call.id, call.name) for call in out[-1].tool_calls)
            case _:
                out.append(_system(turns))
    return out


def _given(value: dict[str, Any], wire: Any, path: str) -> Given:
    if isinstance(wire, Unknown):
        raise bad_request(f"unknown role '{wire.type}', expected user, assistant or system", f"{path}.role")
    return value["role"], wire.content, f"{path}.content"


def _blocks(turns: Iterable[Given]) -> Iterator[tuple[Any, str]]:
    """All blocks of ``turns``, each with its path; a text is a block of its own."""
    for _, content, path in turns:
        if isinstance(content, str):
            yield types.TextBlock(content), path
        else:
            yield from ((wire, f"{path}[{index}]") for index, wire in enumerate(BLOCKS.many(content, path)))


def _user(turns: Sequence[Given], names: dict[str, str]) -> list[Message]:
    """The results of tools, which answer the turn before, and then what the user says; ``names`` of calls by id."""
    results: list[Message] = []
    found: list[Part] = []
    for wire, path in _blocks(turns):
        if isinstance(wire, types.ToolResultBlock):
            results.append(_result(wire, path, names))
        else:
            found += said(wire, path)
    if found:
        return [*results, Message("user", _as_given(turns, found))]
    if not results:
        raise bad_request("a user message must not be empty", turns[0][2])
    return results


def _as_given(turns: Sequence[Given], found: list[Part]) -> str | list[Part]:
    """A text that is all the client sent stays one: templates tell the difference."""
    return turns[0][1] if len(turns) == 1 and isinstance(turns[0][1], str) else found


def _result(wire: types.ToolResultBlock, path: str, names: dict[str, str]) -> Message:
    found = wire.content or ""
    return Message(
        "tool",
        found if isinstance(found, str) else list(_lined(parts(found, f"{path}.content"))),
        name=names.get(wire.tool_use_id),
        tool_call_id=wire.tool_use_id,
        is_error=bool(wire.is_error),
    )


def _lined(found: Iterable[Part]) -> Iterator[Part]:
    """Texts that follow each other as lines of one: models are shown no borders of blocks."""
    for text, group in groupby(found, lambda part: isinstance(part, TextPart)):
        if text:
            yield TextPart("\n".join(part.text for part in group if isinstance(part, TextPart)))
        else:
            yield from group


def _assistant(turns: Sequence[Given]) -> Message:
    found: list[Part] = []
    calls: list[ToolCall] = []
    for wire, path in _blocks(turns):
        match wire:
            case types.TextBlock(text=text):
                found += [TextPart(text)] if text else []
            case types.ThinkingBlock():
                found += [ReasoningPart(wire.thinking, wire.signature)] if wire.thinking else []
            case types.ToolUseBlock():
                calls.append(ToolCall(wire.id, wire.name, arguments_text(wire.input)))
            case _:
                raise misplaced(wire, path)
    return Message("assistant", _as_given(turns, found) if found else None, tool_calls=calls)


def _system(turns: Sequence[Given]) -> Message:
    found: list[Part] = []
    for _, content, path in turns:
        found += [TextPart(content)] if isinstance(content, str) else _texts(content, path)
    return Message("system", _as_given(turns, found))


def _texts(values: list[Any], path: str) -> Iterator[TextPart]:
    for index, wire in enumerate(BLOCKS.many(values, path)):
        if not isinstance(wire, types.TextBlock):
            raise misplaced(wire, f"{path}[{index}]")
        yield TextPart(wire.text)
