"""Questions put to a chat template by rendering small conversations with it.

What a template does with its input is decided by rendering, because only that answers for every way a template may be
written. Each question is asked once per template; a rendering that fails answers "no".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from smg.core.errors import GatewayError
from smg.text.template import Template

# Texts no template contains by itself. Ids have the nine alphanumerics that the strictest templates ask for.
WORD = "qzprobe"
KEY = "qzkey"
VALUE = "qzvalue"
CALL_ID = "qzid00001"

USER: dict[str, Any] = {"role": "user", "content": "qzuser"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "qzassistant"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "qzname",
            "description": "qzdescription",
            "parameters": {"type": "object", "properties": {KEY: {"type": "string", "description": "qz"}}},
        },
    }
]


def call_message(arguments: Any, content: Any = "") -> dict[str, Any]:
    """An assistant turn that calls the probe's tool."""
    call = {"id": CALL_ID, "type": "function", "function": {"name": "qzname", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def result_message(content: Any = "qzresult") -> dict[str, Any]:
    """The answer to ``call_message``."""
    return {"role": "tool", "tool_call_id": CALL_ID, "name": "qzname", "content": content}


def ask(
    template: Template, special: Mapping[str, str], messages: Sequence[dict[str, Any]], **context: Any
) -> str | None:
    """Render ``messages`` with a generation prompt; None when the template fails."""
    try:
        return template.render({**special, "messages": list(messages), "add_generation_prompt": True, **context})
    except GatewayError:
        return None
