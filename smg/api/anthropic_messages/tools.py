"""Decodes tools and tool choice (spec agentic-apis 6.1; text-pipeline 14)."""

from typing import Any

from smg.api.anthropic_messages import types
from smg.constraints.schema import check_parameters
from smg.core.errors import GatewayError, bad_request
from smg.core.request import Tool, ToolChoice
from smg.core.wire import Union, Unknown

_TOOLS: Union[Any] = Union({"custom": types.CustomTool}, default="custom")
_CHOICES: Union[Any] = Union(
    {"auto": types.AutoChoice, "any": types.AutoChoice, "tool": types.ToolChoice, "none": types.NoChoice}
)


def tools(values: list[Any] | None) -> list[Tool]:
    """Decode ``tools``: those that the client runs.

    Raises:
        GatewayError: a field is wrong, or a tool is one that somebody else would have to run, or to describe.
    """
    return [_tool(wire, f"tools[{index}]") for index, wire in enumerate(_TOOLS.many(values or [], "tools"))]


def _tool(wire: Any, path: str) -> Tool:
    if isinstance(wire, Unknown):
        message = f"this gateway has no tools of type '{wire.type}'; the client can offer custom ones, and run them"
        raise GatewayError("unsupported_parameter", message, param=path)
    if not wire.name:
        raise bad_request("a tool needs a name", f"{path}.name")
    check_parameters(wire.input_schema, f"{path}.input_schema")
    # What is kept of the body tells where the schema was.
    raw = {"input_schema": wire.input_schema}
    return Tool(wire.name, wire.description, wire.input_schema, wire.strict, raw=raw)


def tool_choice(value: Any, offered: list[Tool]) -> ToolChoice:
    """Decode ``tool_choice``. Raises GatewayError: a kind or a tool that does not exist, or a call without tools."""
    if value is None:
        return ToolChoice("auto" if offered else "none")
    wire = _CHOICES.one(value, "tool_choice")
    if isinstance(wire, Unknown):
        message = f"unknown tool choice '{wire.type}', expected auto, any, tool or none"
        raise bad_request(message, "tool_choice.type")
    if isinstance(wire, types.NoChoice):
        return ToolChoice("none")
    forced = value["type"] != "auto"
    if not offered:
        if forced:
            raise bad_request("tool_choice needs tools", "tool_choice")
        return ToolChoice("none")
    parallel = not wire.disable_parallel_tool_use
    if not isinstance(wire, types.ToolChoice):
        return ToolChoice("required" if forced else "auto", parallel=parallel)
    if wire.name not in {tool.name for tool in offered}:
        raise bad_request(f"'{wire.name}' is not among the tools", "tool_choice.name")
    return ToolChoice("required", (wire.name,), parallel)
