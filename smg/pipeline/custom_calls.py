"""Custom tools on an HTTP engine that is asked in another dialect: it is given functions, and calls such.

As everywhere, a model is shown a custom tool as a function with the one argument ``input``; the text is taken out of
that again while it arrives.
"""

import json
from collections.abc import Sequence

from msgspec.structs import replace

from smg.core.events import Event, ToolCallDelta, ToolCallEnd, ToolCallStart
from smg.core.request import INPUT, GenerationRequest, Message, Tool
from smg.parsing.custom import Input
from smg.text.messages import parameters_of


def as_functions(request: GenerationRequest) -> GenerationRequest:
    """``request`` without custom tools, and without calls of such in its history."""
    custom = any(tool.kind == "custom" for tool in request.tools)
    called = any(call.kind == "custom" for message in request.messages for call in message.tool_calls)
    if not custom and not called:
        return request
    return replace(
        request,
        tools=[_function(tool) if tool.kind == "custom" else tool for tool in request.tools],
        messages=[_message(message) for message in request.messages],
    )


def unbound(request: GenerationRequest) -> tuple[str, ...]:
    """Paths of grammars that bind no call: forced calls are held to the pattern of a schema, and others to nothing."""
    forced = request.tool_choice.mode == "required"
    return tuple(
        f"tools[{number}].custom.format"
        for number, tool in enumerate(request.tools)
        if tool.grammar is not None and not (forced and tool.grammar.syntax == "regex")
    )


def _function(tool: Tool) -> Tool:
    schema = parameters_of(tool)
    if tool.grammar is not None and tool.grammar.syntax == "regex":
        text = {**schema["properties"][INPUT], "pattern": f"^(?:{tool.grammar.definition})$"}
        schema = {**schema, "properties": {INPUT: text}}
    return Tool(tool.name, tool.description, schema)


def _message(message: Message) -> Message:
    calls = [
        replace(call, kind="function", arguments=json.dumps({INPUT: call.arguments}, ensure_ascii=False))
        if call.kind == "custom"
        else call
        for call in message.tool_calls
    ]
    return replace(message, tool_calls=calls)


class CustomCalls:
    """Makes calls of custom tools of calls of functions, in the events of one answer."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._names = {tool.name for tool in tools if tool.kind == "custom"}
        self._inputs: dict[tuple[int, int], Input] = {}

    def translated(self, events: Sequence[Event]) -> list[Event]:
        if not self._names:
            return list(events)
        return [translated for event in events for translated in self._event(event)]

    def _event(self, event: Event) -> list[Event]:
        match event:
            case ToolCallStart(name=name) if name in self._names:
                self._inputs[event.choice, event.index] = Input()
                return [replace(event, kind="custom")]
            case ToolCallDelta() if (event.choice, event.index) in self._inputs:
                text = self._inputs[event.choice, event.index].feed(event.arguments)
                return [replace(event, arguments=text)] if text else []
            case ToolCallEnd() if (event.choice, event.index) in self._inputs:
                rest = self._inputs.pop((event.choice, event.index)).finish()
                return [*([ToolCallDelta(event.choice, event.index, rest)] if rest else []), event]
        return [event]
