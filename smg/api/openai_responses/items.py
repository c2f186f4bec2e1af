"""Output items, as streamed events and buffered answers print them (spec agentic-apis 4.5).

An item's id is the response's own with the item's place in the output, so that both agree on it.
"""

from collections.abc import Sequence
from typing import Any

from smg.api.openai_parts import logprobs
from smg.core import ids
from smg.core.batch import TokenLogprobs
from smg.core.stream import Decoder

RESPONSE = "resp_"
TEXT, REFUSAL, REASONING = "output_text", "refusal", "reasoning_text"
MESSAGE, THOUGHT, FUNCTION, CUSTOM = "message", "reasoning", "function_call", "custom_tool_call"
_PREFIXES = {MESSAGE: "msg", THOUGHT: "rs", FUNCTION: "fc", CUSTOM: "ctc"}


def response_id() -> str:
    """Mint the id of a response: 37 characters, in the order of time."""
    return RESPONSE + ids.uuid7().hex


class Part:
    """A part of an item's content, or a call's arguments: text that grows, and what belongs to it.

    ``kind`` is output_text, refusal or reasoning_text, and empty for arguments.
    """

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self.logprobs: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def score(self, rows: Sequence[TokenLogprobs], decoder: Decoder) -> list[dict[str, Any]]:
        """Add log probabilities; returns them as they are printed."""
        printed: list[dict[str, Any]] = logprobs(rows, decoder)["content"]
        self.logprobs += printed
        return printed

    def body(self) -> dict[str, Any]:
        """The part as it is now."""
        if self.kind == TEXT:
            printed = {"annotations": list(self.annotations), "logprobs": list(self.logprobs)}
            return {"type": TEXT, "text": self.text, **printed}
        return {"type": self.kind, "refusal" if self.kind == REFUSAL else "text": self.text}


class Item:
    """An item at place ``index``: ``parts`` are a message's or a reasoning's, a call has one with its arguments."""

    def __init__(self, kind: str, response: str, index: int) -> None:
        self.kind = kind
        self.index = index
        self.id = f"{_PREFIXES[kind]}_{response.removeprefix(RESPONSE)}{index:04x}"
        self.parts: list[Part] = []
        self.status = "in_progress"

    def body(self) -> dict[str, Any]:
        """The item as it is now."""
        own = {"type": self.kind, "id": self.id, "status": self.status}
        parts = [part.body() for part in self.parts]
        if self.kind == MESSAGE:
            return {**own, "role": "assistant", "content": parts}
        return {**own, "summary": [], "content": parts}


class Call(Item):
    """A call of a function or of a custom tool, under the id that its result is to name."""

    def __init__(self, kind: str, response: str, index: int, call: str, name: str) -> None:
        super().__init__(CUSTOM if kind == "custom" else FUNCTION, response, index)
        self.arguments = Part()
        self._call = call
        self._name = name

    def body(self) -> dict[str, Any]:
        own = {"type": self.kind, "id": self.id, "status": self.status, "call_id": self._call, "name": self._name}
        return {**own, "input" if self.kind == CUSTOM else "arguments": self.arguments.text}
