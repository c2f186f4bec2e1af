"""The message format of DeepSeek V3.2 (spec text-pipeline 2.6)."""

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

TOOLS_PREFIX = f"""## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<{MARK}function_calls>" block like the following as part of your reply to the user:
<{MARK}function_calls>
<{MARK}invoke name="$FUNCTION_NAME">
<{MARK}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{MARK}parameter>
...
</{MARK}invoke>
<{MARK}invoke name="$FUNCTION_NAME2">
...
</{MARK}invoke>
</{MARK}function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should \
use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types \
(numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. \
Here is an example:

<{MARK}function_calls>
...
</{MARK}function_calls>

<function_results>
...
</function_results>

{THINK}...thinking about results{END_THINK}

Here are the functions available in JSONSchema format:
<functions>
"""  # noqa: E501 - the publisher's own words
TOOLS_SUFFIX = "\n</functions>\n"


class DeepSeekV32:
    """Renders with ``thinking`` (off by default), ``tools`` and ``response_format`` of the context."""

    source = f"DeepSeek V3.2: system, developer, thinking, {THINK} {END_THINK} <{MARK}function_calls>"
    controls = (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, MARK)

    def render(self, context: Mapping[str, Any]) -> str:
        """Render ``context["messages"]``.

        Raises:
            GatewayError: ``process_messages_failed`` for turns the format has no place for.
        """
        thinking = bool(context.get("thinking"))
        turns = in_call_order(with_system(context))
        if thinking and not any(turn.get("tools") for turn in turns):
            asked = last_user(turns)
            # Instructions that were followed already are left out, as in training.
            turns = [turn for index, turn in enumerate(turns) if index >= asked or turn["role"] != "developer"]
        asked = last_user(turns)
        return BOS + "".join(_turn(index, turns, asked, thinking) for index in range(len(turns)))


def _turn(index: int, turns: Sequence[Turn], asked: int, thinking: bool) -> str:
    turn = turns[index]
    content = turn.get("content") or ""
    opener = THINK if thinking and index >= asked else END_THINK
    match turn["role"]:
        case "system":
            return content + _extras(turn)
        case "developer":
            if not content:
                raise refuse("a developer message needs content")
            return f"{USER}{_extras(turn)}\n\n# The user's message is: {content}{ASSISTANT}{opener}"
        case "user":
            return f"{USER}{content}{ASSISTANT}{opener}"
        case "tool":
            return _result(index, turns, opener)
        case "assistant":
            return _answer(turn, thinking and index > asked)
        case role:
            raise refuse(f"this model does not take messages of role '{role}'")


def _extras(turn: Turn) -> str:
    tools = turn.get("tools")
    block = ""
    if tools:
        block = "\n\n" + TOOLS_PREFIX + "\n".join(map(to_json, functions(tools))) + TOOLS_SUFFIX
    return block + response_block(turn.get("schema"))


def _result(index: int, turns: Sequence[Turn], opener: str) -> str:
    called = index - 1
    while called >= 0 and turns[called]["role"] == "tool":
        called -= 1
    calls = len(turns[called].get("tool_calls") or []) if called >= 0 else 0
    place = index - called
    if place > calls:
        raise refuse("a tool message must answer a tool call of the assistant message before it")
    head = "\n\n<function_results>" if place == 1 else ""
    last = place == calls
    if not last and (index + 1 == len(turns) or turns[index + 1]["role"] != "tool"):
        raise refuse("every tool call needs a tool message that answers it")
    tail = f"\n</function_results>\n\n{opener}" if last else ""
    return f"{head}\n<result>{turns[index].get('content') or ''}</result>{tail}"


def _answer(turn: Turn, thought: bool) -> str:
    calls = turn.get("tool_calls") or []
    reasoning = turn.get("reasoning_content") or ""
    if thought and not (reasoning or calls):
        raise refuse(
            "an assistant message after the last user message needs reasoning or tool calls while thinking is on"
        )
    arguments = [arguments_of(call) for call in calls]
    if None in arguments:
        raise refuse("the arguments of a tool call must be a JSON object; leave out a call that was cut off")
    named = [(call["function"]["name"], given or {}) for call, given in zip(calls, arguments, strict=True)]
    head = reasoning + END_THINK if thought else ""
    return head + (turn.get("content") or "") + calls_block("function_calls", named) + EOS
