"""What DeepSeek V3.2 and V4 have in common: special tokens and DSML, their markup of tool calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from smg.text.native.base import Turn, to_json

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK = "<think>", "</think>"
MARK = "｜DSML｜"


def calls_block(name: str, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The block ``name`` with ``calls``, each the name of a function and its arguments; empty without calls."""
    if not calls:
        return ""
    invokes = "\n".join(
        f'<{MARK}invoke name="{function}">\n{_parameters(arguments)}\n</{MARK}invoke>' for function, arguments in calls
    )
    return f"\n\n<{MARK}{name}>\n{invokes}\n</{MARK}{name}>"


def _parameters(arguments: Mapping[str, Any]) -> str:
    return "\n".join(_parameter(key, value) for key, value in arguments.items())


def _parameter(key: str, value: Any) -> str:
    text = isinstance(value, str)
    shown = value if text else to_json(value)
    return f'<{MARK}parameter name="{key}" string="{"true" if text else "false"}">{shown}</{MARK}parameter>'


def response_block(schema: Any) -> str:
    """How the model is told the shape of its answer; empty without ``schema``."""
    if schema is None:
        return ""
    heading = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
    return heading + to_json(schema)


def with_system(context: Mapping[str, Any]) -> list[Turn]:
    """The turns of ``context``, its tools and response schema on the leading system message (made when missing)."""
    turns = [dict(turn) for turn in context["messages"]]
    extra = {"tools": context.get("tools"), "schema": schema_of(context.get("response_format"))}
    extra = {name: value for name, value in extra.items() if value}
    if extra:
        if not turns or turns[0]["role"] != "system":
            turns.insert(0, {"role": "system", "content": ""})
        turns[0] |= extra
    return turns


def schema_of(response_format: Any) -> Any:
    """The JSON schema in a ``response_format``, None when it has none."""
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return None
    wrapped = response_format.get("json_schema")
    return wrapped.get("schema") if isinstance(wrapped, dict) else None
