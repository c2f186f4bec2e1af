"""XTML, the message format of Kimi K3 (spec text-pipeline 2.6).

Angle brackets are control tokens of their own, so nothing needs escaping but quotes in attributes. The model saw the
pieces of a tag encoded one by one: ``joiner``, which the tokenizer cuts at and drops, keeps them apart.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from smg.text.native.base import Turn, arguments_of, compact_json, deep_sorted, in_call_order, refuse, to_json

OPEN, CLOSE, SEP, END = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"
EFFORTS = ("low", "high", "max")

TOOLS = "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{compact}\n```"
MORE_TOOLS = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
    "```json\n{compact}\n```"
)
EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={effort}`."
)
REQUIRED = "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message."
NONE = "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message."
JSON_OBJECT = (
    "The system is invoked with `response_format=json_object`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
)
JSON_SCHEMA = (
    "The system is invoked with `response_format=json_schema`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting.\n"
    "The JSON data must match the following schema:\n```json\n{schema}\n```"
)


class KimiK3:
    """Renders with ``thinking`` (on by default), ``thinking_effort``, ``tools``, ``tool_choice`` and
    ``response_format`` of the context."""

    source = f"Kimi K3: system, thinking, {OPEN}think{SEP} {OPEN}response{SEP} {OPEN}tools{SEP}"

    controls = (OPEN, CLOSE, SEP, END)

    def __init__(self, joiner: str) -> None:
        """``joiner`` may be empty: pieces of tags then run together, which changes few ids."""
        self._joiner = joiner

    def render(self, context: Mapping[str, Any]) -> str:
        """Render ``context["messages"]``.

        Raises:
            GatewayError: ``process_messages_failed`` for an unknown effort and for turns the format has no place for.
        """
        thinking = context.get("thinking") is not False
        pieces = []
        if context.get("tools"):
            pieces.append(self._declare(context["tools"], TOOLS))
        if thinking:
            pieces.append(self._note("thinking-effort", EFFORT.replace("{effort}", _effort(context))))
        pieces += self._turns(in_call_order(context["messages"]), thinking)
        pieces += self._options(context)
        if context.get("add_generation_prompt", True):
            pieces += [self._open("message", role="assistant"), self._open("think" if thinking else "response")]
        return "".join(pieces)

    def _turns(self, turns: Sequence[Turn], thinking: bool) -> list[str]:
        out: list[str] = []
        calls: list[Any] = []
        place = 0
        for turn in turns:
            content = turn.get("content") or ""
            match turn["role"]:
                case "system" if turn.get("tools"):
                    out.append(self._declare(turn["tools"], MORE_TOOLS))
                case "system" | "user" as role:
                    named = {"name": turn["name"]} if turn.get("name") else {}
                    out.append(self._message(content, role=role, **named))
                case "assistant":
                    calls, place = turn.get("tool_calls") or [], 0
                    out.append(self._message(self._answer(turn, thinking), role="assistant"))
                case "tool":
                    place += 1
                    tool = _answered(turn, calls, place)
                    out.append(self._message(content, role="tool", tool=tool, index=place))
                case role:
                    raise refuse(f"this model does not take messages of role '{role}'")
        return out

    def _answer(self, turn: Turn, thinking: bool) -> str:
        reasoning = turn.get("reasoning_content") or ""
        out = self._element("think", reasoning if reasoning.strip() else "") if thinking else ""
        out += self._element("response", turn.get("content") or "")
        calls = turn.get("tool_calls") or []
        return out + (
            self._element("tools", "".join(map(self._call, calls, range(1, len(calls) + 1)))) if calls else ""
        )

    def _call(self, call: Mapping[str, Any], place: int) -> str:
        function = call["function"]
        arguments = arguments_of(call)
        if arguments is None:
            body = self._element("json", function["arguments"], type="object")
        else:
            body = "".join(
                self._element(
                    "argument", value if isinstance(value, str) else to_json(value), key=key, type=_type(value)
                )
                for key, value in arguments.items()
            )
        return self._element("call", body, tool=function["name"], index=place)

    def _options(self, context: Mapping[str, Any]) -> list[str]:
        choice = context.get("tool_choice")
        out = []
        if choice == "none":
            out.append(self._note("tool-choice", NONE))
        elif choice == "required" or isinstance(choice, dict):
            out.append(self._note("tool-choice", REQUIRED))
        wanted = context.get("response_format")
        match wanted.get("type") if isinstance(wanted, dict) else None:
            case "json_object":
                out.append(self._note("response-format", JSON_OBJECT))
            case "json_schema":
                schema = compact_json(deep_sorted((wanted or {})["json_schema"]["schema"]))
                out.append(self._note("response-format", JSON_SCHEMA.replace("{schema}", schema)))
        return out

    def _declare(self, tools: Any, form: str) -> str:
        return self._note("tool-declare", form.replace("{compact}", compact_json(deep_sorted(tools))))

    def _note(self, kind: str, body: str) -> str:
        return self._message(body, role="system", type=kind)

    def _message(self, body: str, **attributes: Any) -> str:
        return self._element("message", body, **attributes) + END

    def _element(self, tag: str, body: str, /, **attributes: Any) -> str:
        return f"{self._open(tag, **attributes)}{body}{CLOSE}{tag}{SEP}"

    def _open(self, tag: str, /, **attributes: Any) -> str:
        pieces = [tag]
        for key, value in attributes.items():
            escaped = str(value).replace("&", "&amp;").replace('"', "&quot;")
            pieces += [f" {key}", '="', escaped, '"']
        return OPEN + self._joiner.join(piece for piece in pieces if piece) + SEP


def _effort(context: Mapping[str, Any]) -> str:
    asked = context.get("thinking_effort")
    if asked is not None:
        if asked not in EFFORTS:
            raise refuse(f"thinking_effort must be one of {', '.join(EFFORTS)}")
        return str(asked)
    wish = context.get("reasoning_effort")
    return str(wish) if wish in EFFORTS else "max"


def _answered(turn: Turn, calls: Sequence[Mapping[str, Any]], place: int) -> str:
    """The name of the tool whose call ``turn`` answers: by id, by the name it gives, or by its place."""
    for call in calls:
        if call.get("id") is not None and call.get("id") == turn.get("tool_call_id"):
            return str(call["function"]["name"])
    if turn.get("name"):
        return str(turn["name"])
    if place > len(calls):
        raise refuse("a tool message must answer a tool call of the assistant message before it")
    return str(calls[place - 1]["function"]["name"])


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int() | float():
            return "number"
        case str():
            return "string"
        case dict():
            return "object"
        case _:
            return "array"
