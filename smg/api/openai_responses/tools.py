"""Decodes tools and tool choice, which differ from chat's in shape only (spec agentic-apis 4.4)."""

from typing import Any

import msgspec

from smg.api.openai_chat import tools as chat
from smg.api.openai_chat.types import ChatBody
from smg.api.openai_responses import types
from smg.core.errors import GatewayError, bad_request
from smg.core.request import Tool, ToolChoice
from smg.core.wire import Union, Unknown

_TOOLS: Union[Any] = Union({"function": types.FunctionTool, "custom": types.CustomTool})

# Tools that a server runs by itself. There is nothing here that could run them.
HOSTED = frozenset(
    {
        *("web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11"),
        *("file_search", "code_interpreter", "image_generation", "mcp", "tool_search", "programmatic_tool_calling"),
        *("computer", "computer_use_preview", "shell", "local_shell", "apply_patch", "namespace"),
    }
)


def tools(values: list[Any] | None) -> list[Tool]:
    """Decode ``tools``. Raises GatewayError naming the field: ``unsupported_tool`` for one that would run here."""
    wires = _TOOLS.many(values or [], "tools")
    return chat.tools(ChatBody(tools=[_as_chat(wire, f"tools[{index}]") for index, wire in enumerate(wires)]))


def tool_choice(body: types.PromptBody, offered: list[Tool]) -> ToolChoice:
    """Decode ``tool_choice`` and ``parallel_tool_calls``. Raises GatewayError naming the field."""
    value = body.tool_choice
    if isinstance(value, dict) and value.get("type") in HOSTED:
        raise unsupported(str(value["type"]), "tool_choice.type")
    if value == "auto":
        # What holds anyway, and agents say it also where they have no tools.
        value = None
    return chat.tool_choice(ChatBody(tool_choice=value, parallel_tool_calls=body.parallel_tool_calls), offered)


def unsupported(name: str, path: str) -> GatewayError:
    """The error for a tool of type ``name`` that nothing here runs."""
    message = f"this gateway runs no tools of type '{name}'; it takes function and custom tools, which clients run"
    return GatewayError("unsupported_tool", message, param=path)


def _as_chat(wire: types.FunctionTool | types.CustomTool | Unknown, path: str) -> dict[str, Any]:
    if isinstance(wire, Unknown):
        if wire.type in HOSTED:
            raise unsupported(wire.type, f"{path}.type")
        raise bad_request(f"unknown type of tool '{wire.type}', expected function or custom", f"{path}.type")
    kind = "function" if isinstance(wire, types.FunctionTool) else "custom"
    given = {name: value for name, value in msgspec.structs.asdict(wire).items() if value is not None}
    return {"type": kind, kind: given}
