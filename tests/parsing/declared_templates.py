"""Response templates as checkpoints carry them, and outputs for them.

The forms are those of the documentation of Hugging Face's "Response Parsing", written down anew."""

from typing import Any

_CHATML = {"defaults": {"role": "assistant"}, "start_anchor": "<|im_start|>assistant\n"}
_WHOLE = {"type": "function", "function": "{content}"}
_THINK = {"open": "<think>", "close": "</think>", "content": "text"}
_END = {"close": "<|im_end|>", "content": "text"}


def _named(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


JSON: dict[str, Any] = {
    **_CHATML,
    "fields": {
        "thinking": _THINK,
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": _WHOLE,
        },
        "content": _END,
    },
}
XML: dict[str, Any] = {
    **_CHATML,
    "fields": {
        "reasoning_content": _THINK,
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>",
                "value_parser": {"name": "json", "args": {"allow_non_json": True}},
            },
            "transform": _named("{name}", "{content}"),
        },
        "content": _END,
    },
}
HARMONY: dict[str, Any] = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "thinking": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
        "content": {"open": "<|channel|>final<|message|>", "close": ["<|return|>", "<|end|>"]},
        "tool_calls": {
            "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\w+).*?<\|message\|>",
            "close": "<|call|>",
            "repeats": True,
            "content": "json",
            "transform": _named("{name}", "{content}"),
        },
    },
}
ARRAY: dict[str, Any] = {
    "start_anchor": "<|CHATBOT_TOKEN|>",
    "fields": {
        "thinking": {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
        "content": {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
        "tool_calls": {
            "open": "<|START_ACTION|>",
            "close": "<|END_ACTION|>",
            "content": "json",
            "transform_each": True,
            "transform": _named("{tool_name}", "{parameters}"),
        },
    },
}
LAX: dict[str, Any] = {
    "start_anchor_pattern": r"<\|turn>model\n",
    "fields": {
        "thinking": {"open_pattern": r"<\|channel>thought\n?", "close": "<channel|>"},
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>[\w.-]+)",
            "close": "<tool_call|>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "transform": _named("{name}", "{content}"),
        },
        "content": {"close": "<turn|>"},
    },
}
PYTHON: dict[str, Any] = {
    **_CHATML,
    "fields": {
        "tool_calls": {
            "open": "<|tool_call_start|>",
            "close": "<|tool_call_end|>",
            "content": "python-call-list",
            "transform_each": True,
            "transform": _named("{name}", "{arguments}"),
        },
        "content": _END,
    },
}
LINES: dict[str, Any] = {
    **_CHATML,
    "fields": {
        "tool_calls": {
            "open_pattern": r"@call (?P<name>\w+)\n",
            "close": "@end",
            "repeats": True,
            "content": "kv-lines",
            "transform": _named("{name}", "{content}"),
        },
        "content": {},
    },
}

# Template, end of the prompt, output.
OUTPUTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": (JSON, "<|im_start|>assistant\n", "The answer is 4 < 5."),
    "thinking": (JSON, "<|im_start|>assistant\n", "<think>\nI greet the user.\n</think>\n\nHi!"),
    "opened by the prompt": (JSON, "<|im_start|>assistant\n<think>\n", "I greet.\n</think>\n\nHi!<|im_end|>"),
    "closed by the prompt": (JSON, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Hi </think>!"),
    "earlier turns": (JSON, "<|im_start|>assistant\n<think>x<|im_end|>\n<|im_start|>assistant\n", "Hi!"),
    "two calls": (
        JSON,
        "<|im_start|>assistant\n",
        '<think>\nBoth.\n</think>\n\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}'
        '</tool_call>\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>',
    ),
    "text and a call": (
        JSON,
        "<|im_start|>assistant\n",
        'I look it up.\n\n<tool_call>{"name": "run", "arguments": {"cmd": "ls \\"é\\""}}</tool_call>',
    ),
    "tags": (
        XML,
        "<|im_start|>assistant\n",
        "<think>\nhm\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=ping>\n</function>\n"
        "</tool_call>",
    ),
    "channels": (
        HARMONY,
        "<|start|>user<|message|>hi<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>I need the weather.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo", "days": 3}<|call|>',
    ),
    "a channel's answer": (
        HARMONY,
        "<|start|>assistant",
        "<|channel|>analysis<|message|>2 + 2<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
    ),
    "an array": (
        ARRAY,
        "<|CHATBOT_TOKEN|>",
        "<|START_THINKING|>Both.<|END_THINKING|><|START_ACTION|>[\n"
        '{"tool_name": "get_weather", "parameters": {"city": "Oslo", "days": 3}},\n'
        '{"tool_name": "run", "parameters": {"cmd": "ls"}}\n]<|END_ACTION|>',
    ),
    "a marked answer": (
        ARRAY,
        "<|CHATBOT_TOKEN|>",
        "<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>Hi!<|END_RESPONSE|>",
    ),
    "quotes of its own": (
        LAX,
        "<|turn>model\n",
        '<|channel>thought\nI call.<channel|><|tool_call>call:search{query:<|"|>a "b", {c: d}<|"|>,limit:2.5,'
        'filters:{k:[<|"|>x<|"|>,true]}}<tool_call|>',
    ),
    "python": (
        PYTHON,
        "<|im_start|>assistant\n",
        "<|tool_call_start|>[get_weather(city='O]slo', days=3), search(query=\"q\", tags=['a', 'b'])]<|tool_call_end|>"
        "Calling both.<|im_end|>",
    ),
    "lines": (LINES, "<|im_start|>assistant\n", "@call run\ncmd: ls: all\n\n@end"),
}
