"""What renderers of message formats share. Each is used like a Jinja template (``smg.text.template.Template``)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from smg.core.errors import GatewayError
from smg.text.shield import reveal

Turn: TypeAlias = dict[str, Any]


def refuse(message: str) -> GatewayError:
    """The error for a conversation that the format has no place for."""
    return GatewayError("process_messages_failed", reveal(message))


def to_json(value: Any) -> str:
    """JSON as these formats were trained with: Python's spacing, other alphabets as they are."""
    return json.dumps(value, ensure_ascii=False)


def compact_json(value: Any) -> str:
    """JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def deep_sorted(value: Any) -> Any:
    """Copy a JSON-like value with the keys of all its objects in order."""
    match value:
        case dict():
            return {key: deep_sorted(value[key]) for key in sorted(value)}
        case list():
            return [deep_sorted(item) for item in value]
        case _:
            return value


def functions(tools: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The functions of ``tools``, without what chat completions wrap them in."""
    return [tool["function"] for tool in tools]


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call as an object; None when they are text that is none."""
    arguments = call["function"]["arguments"]
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None


def in_call_order(turns: Sequence[Turn]) -> list[Turn]:
    """Put each run of tool results into the order of the calls they answer, when every one names its call."""
    out: list[Turn] = []
    order: dict[Any, int] = {}
    start = 0  # of the run that is at the end of ``out``
    for turn in turns:
        if turn["role"] == "tool":
            out.append(turn)
            if all(result.get("tool_call_id") in order for result in out[start:]):
                out[start:] = sorted(out[start:], key=lambda result: order[result["tool_call_id"]])
            continue
        out.append(turn)
        start = len(out)
        if turn["role"] == "assistant":
            calls = turn.get("tool_calls") or []
            order = {}
            for place, call in enumerate(calls):
                order.setdefault(call.get("id"), place)
    return out


def last_user(turns: Sequence[Turn]) -> int:
    """Index of the last turn that asks something, -1 when there is none."""
    return max((index for index, turn in enumerate(turns) if turn["role"] in ("user", "developer")), default=-1)
