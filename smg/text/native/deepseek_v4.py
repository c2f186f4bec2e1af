"""The message format of DeepSeek V4 (spec text-pipeline 2.6)."""

from collections.abc import Mapping, Sequence
from typing import Any

from smg.text.native.base import Turn, arguments_of, functions, in_call_order, last_user, refuse, to_json
from smg.text.native.dsml import (
    ASSISTANT,
    BOS,
    END_THINK,
    EOS,
    MARK,
    THINK,
    USER,
    calls_block,
    response_block,
    with_system,
)

REMINDER = "<｜latest_reminder｜>"
TASKS = ("action", "query", "authority", "domain", "title", "read_url")

TOOLS_PREFIX = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<{MARK}tool_calls>" block like the following:

<{MARK}tool_calls>
<{MARK}invoke name="$TOOL_NAME">
<{MARK}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{MARK}parameter>
...
</{MARK}invoke>
<{MARK}invoke name="$TOOL_NAME2">
...
</{MARK}invoke>
</{MARK}tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, \
objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside \
{THINK}...{END_THINK} BEFORE any tool calls or final response.

Otherwise, output directly after {END_THINK} with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_SUFFIX = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
MAX_EFFORT = (
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n"
)


class DeepSeekV4:
    """Renders with ``thinking`` (off by default), ``reasoning_effort`` (``max``), ``tools`` and ``response_format``."""

    source = f"DeepSeek V4: system, developer, thinking, {THINK} {END_THINK} <{MARK}tool_calls>"
    controls = (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, MARK, REMINDER, *(f"<｜{task}｜>" for task in TASKS))

    def render(self, context: Mapping[str, Any]) -> str:
        """Render ``context["messages"]``; a user turn may have a ``task`` (one of TASKS).

        Raises:
            GatewayError: ``process_messages_failed`` for turns the format has no place for.
        """
        thinking = bool(context.get("thinking"))
        turns = _fold_results(in_call_order(with_system(context)))
        # Reasoning of earlier rounds stays as long as tools are at hand.
        forget = thinking and not any(turn.get("tools") for turn in turns)
        if forget:
            asked = last_user(turns)
            turns = [turn for index, turn in enumerate(turns) if index >= asked or turn["role"] != "developer"]
        effort = MAX_EFFORT if thinking and context.get("reasoning_effort") == "max" and turns else ""
        asked = last_user(turns)
        pieces = []
        for index, turn in enumerate(turns):
            task = turns[index - 1].get("task") if index else None
            thought = thinking and task is None and (index > asked or not forget)
            pieces.append(_body(turn, thought))
            if index + 1 == len(turns) or turns[index + 1]["role"] in ("assistant", "latest_reminder"):
                pieces.append(_transition(turn, thinking, thinking and (index >= asked or not forget)))
        return BOS + effort + "".join(pieces)


def _fold_results(turns: Sequence[Turn]) -> list[Turn]:
    """Make tool results parts of user turns, and one turn of several in a row."""
    out: list[Turn] = []
    for turn in turns:
        if turn["role"] not in ("user", "tool"):
            out.append(turn)
            continue
        text = turn.get("content") or ""
        if turn["role"] == "tool":
            text = f"<tool_result>{text}</tool_result>"
        before = out[-1] if out and out[-1]["role"] == "user" and out[-1].get("task") is None else None
        if before is None:
            out.append({**turn, "role": "user", "content": text})
        else:
            out[-1] = {**before, "content": f"{before['content']}\n\n{text}", "task": turn.get("task")}
    return out


def _body(turn: Turn, thought: bool) -> str:
    content = turn.get("content") or ""
    match turn["role"]:
        case "system":
            return content + _extras(turn)
        case "developer":
            if not content:
                raise refuse("a developer message needs content")
            return USER + content + _extras(turn)
        case "user":
            return USER + str(content)
        case "latest_reminder":
            return REMINDER + str(content)
        case "assistant":
            head = (turn.get("reasoning_content") or "") + END_THINK if thought else ""
            return head + content + calls_block("tool_calls", _calls(turn)) + EOS
        case role:
            raise refuse(f"this model does not take messages of role '{role}'")


def _extras(turn: Turn) -> str:
    tools = turn.get("tools")
    block = ""
    if tools:
        block = "\n\n" + TOOLS_PREFIX + "\n".join(map(to_json, functions(tools))) + TOOLS_SUFFIX
    return block + response_block(turn.get("schema"))


def _calls(turn: Turn) -> list[tuple[str, dict[str, Any]]]:
    calls = []
    for call in turn.get("tool_calls") or []:
        arguments = arguments_of(call)
        if arguments is None:
            arguments = {"arguments": call["function"]["arguments"]}
        calls.append((call["function"]["name"], arguments))
    return calls


def _transition(turn: Turn, thinking: bool, thought: bool) -> str:
    """What hands over to the assistant behind ``turn``."""
    task = turn.get("task")
    if task is not None:
        if task not in TASKS:
            raise refuse(f"task must be one of {', '.join(TASKS)}")
        mark = f"<｜{task}｜>"
        return mark if task != "action" else ASSISTANT + (THINK if thinking else END_THINK) + mark
    if turn["role"] in ("user", "developer"):
        return ASSISTANT + (THINK if thought else END_THINK)
    return ""
