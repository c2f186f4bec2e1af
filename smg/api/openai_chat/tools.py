"""Decodes tools and tool choice of a chat request (spec api-and-ops 1.5; text-pipeline 9, 17)."""

from typing import Any

from smg.api.openai_chat import types
from smg.constraints import custom
from smg.constraints.schema import check_parameters
from smg.core.errors import bad_request
from smg.core.request import Tool, ToolChoice, ToolGrammar
from smg.core.wire import Union, Unknown, convert, kind_of

_TOOLS: Union[Any] = Union({"function": types.FunctionTool, "custom": types.CustomTool}, default="function")
_MODES = ("none", "auto", "required")


def tools(body: types.ChatBody) -> list[Tool]:
    """Decode ``tools``, or the legacy ``functions``. Raises GatewayError naming the field."""
    if not body.tools and body.functions:
        functions = [convert(item, types.Function, f"functions[{i}]") for i, item in enumerate(body.functions)]
        return [_function(function, {}, f"functions[{i}]") for i, function in enumerate(functions)]
    out = []
    for index, wire in enumerate(_TOOLS.many(body.tools or [], "tools")):
        path, raw = f"tools[{index}]", (body.tools or [])[index]
        match wire:
            case types.FunctionTool():
                out.append(_function(wire.function, raw, f"{path}.function"))
            case types.CustomTool():
                out.append(_custom(wire.custom, raw, f"{path}.custom"))
            case Unknown():
                raise bad_request(f"unknown kind of tool '{wire.type}'", f"{path}.type")
    return out


def _function(function: types.Function, raw: dict[str, Any], path: str) -> Tool:
    if not function.name:
        raise bad_request("a function needs a name", f"{path}.name")
    parameters = function.parameters if function.parameters is not None else {"type": "object", "properties": {}}
    check_parameters(parameters, f"{path}.parameters")
    return Tool(function.name, function.description, parameters, function.strict, raw=raw)


def _custom(wire: types.CustomDefinition, raw: dict[str, Any], path: str) -> Tool:
    if not wire.name:
        raise bad_request("a tool needs a name", f"{path}.name")
    grammar = None if wire.format is None else _grammar(wire.format, f"{path}.format")
    return Tool(wire.name, wire.description, kind="custom", raw=raw, grammar=grammar)


def _grammar(value: dict[str, Any], path: str) -> ToolGrammar | None:
    match value.get("type"):
        case "text":
            return None
        case "grammar":
            nested = value.get("grammar")
            if isinstance(nested, dict):
                value, path = nested, f"{path}.grammar"
            wire = convert(value, types.GrammarFormat, path)
            grammar = ToolGrammar(wire.syntax, wire.definition)
            custom.check(grammar, f"{path}.definition")
            return grammar
    raise bad_request("unknown format of a custom tool's input, expected text or grammar", f"{path}.type")


def tool_choice(body: types.ChatBody, offered: list[Tool]) -> ToolChoice:
    """Decode ``tool_choice`` (or the legacy ``function_call``) and ``parallel_tool_calls``.

    Raises:
        GatewayError: a choice that needs tools without any, an unknown function or mode.
    """
    parallel = body.parallel_tool_calls is not False
    value, path = body.tool_choice, "tool_choice"
    if value is None and body.function_call is not None:
        value, path = body.function_call, "function_call"
        if isinstance(value, dict):
            value = {"type": "function", "function": value}
    if value is None:
        return ToolChoice("auto" if offered else "none", parallel=parallel)
    mode, names = _mode(value, path)
    if mode != "none" and not offered:
        raise bad_request("tool_choice needs tools", path)
    known = {tool.name: tool.kind for tool in offered}
    for name in names:
        if name not in known:
            raise bad_request(f"tool_choice names '{name}', which is not among the tools", path)
    kind = value["type"] if isinstance(value, dict) else ""
    if kind in ("function", "custom") and known[names[0]] != kind:
        raise bad_request(f"'{names[0]}' is a tool of type {known[names[0]]}, not {kind}", f"{path}.type")
    return ToolChoice(mode, names, parallel)


def _mode(value: Any, path: str) -> tuple[str, tuple[str, ...]]:
    if isinstance(value, str):
        if value not in _MODES:
            raise bad_request(f"unknown tool choice '{value}', expected none, auto or required", path)
        return value, ()
    if not isinstance(value, dict):
        raise bad_request(f"Expected 'str' or 'object', got '{kind_of(value)}'", path)
    match value.get("type"):
        case "function" | "custom" as kind:
            return "required", (_name(value, str(kind), path),)
        case "allowed_tools":
            return _allowed(value, path)
    raise bad_request("unknown kind of tool choice, expected function, custom or allowed_tools", f"{path}.type")


def _allowed(value: dict[str, Any], path: str) -> tuple[str, tuple[str, ...]]:
    """Both the flat shape and OpenAI's, which nests under ``allowed_tools``."""
    inner = value.get("allowed_tools")
    if isinstance(inner, dict):
        value, path = inner, f"{path}.allowed_tools"
    mode = value.get("mode")
    if mode not in ("auto", "required"):
        raise bad_request("mode must be auto or required", f"{path}.mode")
    listed = value.get("tools")
    if not isinstance(listed, list) or not listed:
        raise bad_request("at least one tool must be allowed", f"{path}.tools")
    names = []
    for index, item in enumerate(listed):
        where = f"{path}.tools[{index}]"
        if not isinstance(item, dict):
            raise bad_request(f"Expected 'object', got '{kind_of(item)}'", where)
        names.append(_name(item, str(item.get("type", "function")), where))
    return mode, tuple(names)


def _name(value: dict[str, Any], kind: str, path: str) -> str:
    nested = value.get(kind)
    name = nested.get("name") if isinstance(nested, dict) else value.get("name")
    if not isinstance(name, str) or not name:
        raise bad_request("the tool's name is missing", f"{path}.{kind}.name")
    return name
