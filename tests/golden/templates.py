"""Chat templates of public models and conversations to render with them.

The templates are files of two packages that are installed for this and never imported (requirements/templates.in), and
the one of the embedded engine's model. What is expected is what ``transformers`` makes of them.
"""

import importlib.util
import itertools
import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from smg.engine_server.llama import gguf_metadata
from smg.engine_server.llama.engine import default_model

_TRL = (
    *("cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3", "gemma4", "glm4moe", "gptoss"),
    *("lfm2", "llama3", "llama3_1", "llama3_2", "nemotron_3_nano", "phi3", "phi3_5", "qwen2_5", "qwen2_5_vl"),
    *("qwen3", "qwen3_5_think", "qwen3_instruct_2507", "qwen3_training", "qwen3_vl"),
)
_AXOLOTL = (
    *("chatml", "command_a", "command_a_tool_use", "deepseek_v2", "exaone4", "falcon_h1", "jamba", "llama4"),
    *("mistral_v1", "mistral_v2v3", "mistral_v3_tekken", "mistral_v7_tekken", "phi_4", "pixtral"),
)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def _folder(package: str, *inside: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None, f"{package} is not installed (requirements/templates.txt)"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0], *inside)


def load() -> dict[str, str]:
    """Template texts by name."""
    trl, axolotl = _folder("trl", "chat_templates"), _folder("axolotl", "utils", "chat_templates", "templates")
    found = {name: (trl / f"{name}.jinja").read_text("utf-8") for name in _TRL}
    found |= {name: (axolotl / f"{name}.jinja").read_text("utf-8") for name in _AXOLOTL}
    return found | {"smollm2": gguf_metadata.read(default_model())["tokenizer.chat_template"]}


def system(text: str = "You are terse.") -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(content: Any = "Hi there") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = "Hello.", **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def call(number: int, name: str = "get_weather", arguments: str = '{"city": "Oslo", "days": 3}') -> dict[str, Any]:
    # Nine alphanumerics, as the strictest templates want them.
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(number: int, content: Any = '{"degrees": 15}', name: str = "get_weather") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call0000{number}", "name": name, "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tells the weather of “to-day” & later.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where"},
                    "days": {"type": "integer", "description": "How many"},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "ping", "description": "Pings", "parameters": {"type": "object", "properties": {}}},
    },
]
_ASKED = [user("Weather in Oslo?"), assistant(None, tool_calls=[call(1)]), result(1)]

# Bodies of chat requests, without the model.
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "user": {"messages": [user()]},
    "system": {"messages": [system(), user()]},
    "turns": {"messages": [system(), user("One?"), assistant("1"), user("Two?"), assistant("2"), user("Three?")]},
    "texts": {
        "messages": [
            system("  Ærøskøbing 😀 "),
            user("a <b> & 'c' \"d\"\n\n\tindented  "),
            assistant("{{ x }}"),
            user(),
        ]
    },
    "tools": {"messages": [system(), user("Weather in Oslo?")], "tools": TOOLS},
    "tools without system": {"messages": [user("Weather in Oslo?")], "tools": TOOLS},
    "result": {"messages": [system(), *_ASKED], "tools": TOOLS},
    "answered": {"messages": [*_ASKED, assistant("15 degrees."), user("And Bergen?")], "tools": TOOLS},
    "two calls": {
        "messages": [
            user(),
            assistant(None, tool_calls=[call(1), call(2, "ping", "{}")]),
            result(1),
            result(2, "pong"),
        ],
        "tools": TOOLS,
    },
    "call with text": {
        "messages": [user(), assistant("I look.", tool_calls=[call(1)]), result(1), assistant("15."), user("Thanks")],
        "tools": TOOLS,
    },
    "parts": {"messages": [system(), user(parts("One paragraph.")), assistant("Yes."), user(parts("Next."))]},
    "result as parts": {"messages": [*_ASKED[:2], result(1, parts("15 degrees"))], "tools": TOOLS},
    "thinking on": {"messages": [user()], "chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
    "thinking off": {"messages": [user()], "chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    "earlier reasoning": {
        "messages": [user("17*3?"), assistant("51", reasoning_content="10*3 + 7*3"), user("Sure?")],
    },
    "reasoning and a call": {
        "messages": [user(), assistant(None, reasoning_content="I must look.", tool_calls=[call(1)]), result(1)],
        "tools": TOOLS,
    },
    "no generation prompt": {
        "messages": [user(), assistant("Hello."), user("More")],
        "chat_template_kwargs": {"add_generation_prompt": False},
    },
    "continued": {"messages": [system(), user(), assistant("The answer is")], "continue_final_message": True},
}


def expected(source: str, body: dict[str, Any], special: dict[str, str]) -> str | None:
    """What transformers renders; None when the template refuses the conversation.

    Its convention is arguments as objects and content as the client sent it. Where a template cannot do with that (it
    concatenates arguments, or prints a null or a list of parts as such), it gets the other form: that is what cases
    CT-01 and CT-03 ask for.
    """
    printed = re.compile(r"""['"]type['"]: ?['"]text['"]|\\"city|'city':""")
    nothing = [word for word in ("None", "null") if word not in source]
    for form in itertools.product((True, False), repeat=3):
        messages = _messages(body["messages"], *form)
        prompt = _rendered(source, messages, body, special)
        if prompt is None or printed.search(prompt) or any(word in prompt for word in nothing):
            continue
        if all(
            text in prompt for message in messages if isinstance(message["content"], list) for text in _texts(message)
        ):
            return prompt
    return None


def forms(source: str, body: dict[str, Any], special: dict[str, str]) -> list[str]:
    """What transformers renders of each form of the conversation that the template takes."""
    given = (_messages(body["messages"], *form) for form in itertools.product((True, False), repeat=3))
    rendered = (_rendered(source, messages, body, special) for messages in given)
    return [prompt for prompt in rendered if prompt is not None]


def _texts(message: dict[str, Any]) -> list[str]:
    return [part["text"] for part in message["content"]]


def _messages(given: list[dict[str, Any]], nulls: bool, objects: bool, lists: bool) -> list[dict[str, Any]]:
    """The conversation with content null, arguments as objects, and content as a list, or not."""
    messages = deepcopy(given)
    for message in messages:
        for made in message.get("tool_calls", ()) if objects else ():
            made["function"]["arguments"] = json.loads(made["function"]["arguments"])
        if message["content"] is None and not nulls:
            message["content"] = ""
        if isinstance(message["content"], list) and not lists:
            message["content"] = "".join(part["text"] for part in message["content"])
    return messages


def _rendered(source: str, messages: list[Any], body: dict[str, Any], special: dict[str, str]) -> str | None:
    settings = {"add_generation_prompt": not body.get("continue_final_message"), **body.get("chat_template_kwargs", {})}
    try:
        (prompt,), _ = render_jinja_template(
            [messages],
            tools=body.get("tools"),
            chat_template=source,
            continue_final_message=body.get("continue_final_message", False),
            **special,
            **settings,
        )
    except Exception:  # whatever a template does when it refuses
        return None
    return str(prompt)
