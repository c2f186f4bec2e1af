"""Conversations at random: odd texts, tools of all shapes, calls, reasoning, parts, and what templates are told."""

import json
from random import Random
from typing import Any

from tests.golden import templates

WORDS = ["hello", "  lead", "trail  ", "\n\nnl\n", "<", "<|", "<|im_end|>", "a & b", '"q"', "it's", "{{x}}", "{% if %}"]
WORDS += ["é😀", "\u0301", "\x00", "<think>", "</think>", "<think>r</think>ans", "[INST]", "0", "\t", "日本", "\u2028"]
WORDS += ["\\n", "\\u003c", "</s>", "<s>", "<tool_call>", "```py\nx\n```", "/no_think", "\r\n", "a" * 50]


class Conversations:
    """Bodies of chat requests, the same for each ``seed``."""

    def __init__(self, seed: int) -> None:
        self._draw = Random(seed)

    def body(self) -> dict[str, Any]:
        messages = [templates.system(self._text())] if self._often(0.5) else []
        for _ in range(self._draw.randint(1, 3)):
            messages += [templates.user(self._content()), *self._answer()]
        if messages[-1]["role"] == "assistant":
            messages.append(templates.user(self._text()))
        body: dict[str, Any] = {"messages": messages}
        if self._often(0.5):
            body["tools"] = [self._tool(number) for number in range(self._draw.randint(1, 3))]
        settings: dict[str, Any] = {}
        if self._often(0.3):
            settings |= dict.fromkeys(("enable_thinking", "thinking"), self._often(0.5))
        if self._often(0.1):
            settings["add_generation_prompt"] = False
        return body | ({"chat_template_kwargs": settings} if settings else {})

    def _often(self, chance: float) -> bool:
        return self._draw.random() < chance

    def _text(self) -> str:
        text = "".join(self._draw.choice(WORDS) for _ in range(self._draw.randint(1, 4)))
        return text if text.strip() else "blank"

    def _content(self) -> Any:
        return templates.parts(self._text()) if self._often(0.25) else self._text()

    def _answer(self) -> list[dict[str, Any]]:
        reasoning = {"reasoning_content": self._text()} if self._often(0.3) else {}
        if self._often(0.6):
            return [templates.assistant(self._text(), **reasoning)]
        names = [f"tool_{number}" for number in range(self._draw.randint(1, 2))]
        calls = [templates.call(at + 1, name, self._arguments()) for at, name in enumerate(names)]
        results = [templates.result(at + 1, self._text(), name) for at, name in enumerate(names)]
        # With an empty text, or with text, some templates leave the call or the reasoning out, or refuse all three.
        return [templates.assistant(None, tool_calls=calls, **reasoning), *results, templates.assistant(self._text())]

    def _arguments(self) -> str:
        given = {self._draw.choice(["town", "days", "é"]): self._value() for _ in range(self._draw.randint(0, 3))}
        return json.dumps(given, ensure_ascii=self._often(0.5))

    def _value(self, depth: int = 0) -> Any:
        match self._draw.randrange(4 if depth < 2 else 2):
            case 0:
                return self._text()
            case 1:
                return self._draw.choice([0, 1, -5, 3.5, 1e22, True, False, 10**20])
            case 2:
                return [self._value(depth + 1) for _ in range(self._draw.randint(0, 3))]
            case _:
                return {self._draw.choice(["a", "é", '"', "x y", ""]): self._value(depth + 1) for _ in range(2)}

    def _tool(self, number: int) -> dict[str, Any]:
        kinds = ["string", "integer", "array", "object", "boolean", "number"]
        properties: dict[str, Any] = {}
        for name in self._draw.sample(["town", "days", "é", "x-y"], self._draw.randint(0, 3)):
            made: dict[str, Any] = {"type": self._draw.choice(kinds)}
            made |= {"description": self._text()} if self._often(0.6) else {}
            made |= {"enum": [self._text(), self._text()]} if self._often(0.3) else {}
            properties[name] = made
        parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
        function = {"name": f"tool_{number}", "description": self._text(), "parameters": parameters}
        return {"type": "function", "function": function}
