"""vLLM's own parsers behind a pipe: run by the Python of a vLLM installation, one JSON line in and one out.

A question names a tool ``parser`` or a ``reasoning`` parser, and has the ``tools`` of the request, the ``specials`` of
the vocabulary and the pieces of an output. The answer has what became of them read whole and streamed, or the error
that a parser raised. One that asks for ``names`` is told which parsers there are.
"""

import json
import os
import re
import sys
from typing import Any

FIRST_SPECIAL = 0x110000


class Vocabulary:
    """A tokenizer as parsers use one: each special token is one id, and every other character too."""

    eos_token_id = FIRST_SPECIAL - 1
    bos_token_id = None
    is_fast = True

    def __init__(self, specials: list[str]) -> None:
        self.all_special_tokens: list[str] = []
        self.all_special_ids: list[int] = []
        self._ids = {text: FIRST_SPECIAL + number for number, text in enumerate(specials)}
        self._texts = {number: text for text, number in self._ids.items()}
        longest = sorted(specials, key=len, reverse=True)
        self._split = re.compile("|".join([*map(re.escape, longest), "."]), re.DOTALL)

    def get_vocab(self) -> dict[str, int]:
        return {chr(code): code for code in range(32, 127)} | self._ids

    get_added_vocab = get_vocab

    @property
    def vocab(self) -> dict[str, int]:
        return self.get_vocab()

    def encode(self, text: str, **_options: Any) -> list[int]:
        return [self._ids.get(part, ord(part[0])) for part in self._split.findall(text)]

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self._ids.get(token, ord(token) if len(token) == 1 else None)

    def convert_ids_to_tokens(self, ids: list[int], **_options: Any) -> list[str]:
        return [self._texts.get(number) or chr(number) for number in ids]

    def decode(self, ids: list[int] | int, **_options: Any) -> str:
        return "".join(self.convert_ids_to_tokens([ids] if isinstance(ids, int) else ids))


def _request(tools: list[dict[str, Any]]) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    more = {"tools": tools} if tools else {}
    return ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "hi"}], **more)


def _parser(name: str, question: dict[str, Any], request: Any) -> Any:
    from vllm.tool_parsers import ToolParserManager

    return ToolParserManager.get_tool_parser(name)(Vocabulary(question["specials"]), request.tools)


def whole(question: dict[str, Any]) -> dict[str, Any]:
    """The output read at once."""
    request = _request(question["tools"])
    found = _parser(question["parser"], question, request).extract_tool_calls("".join(question["pieces"]), request)
    calls = [[call.function.name, call.function.arguments] for call in found.tool_calls]
    return {"content": found.content or "", "calls": calls}


def streamed(question: dict[str, Any]) -> dict[str, Any]:
    """The output piece by piece."""
    request = _request(question["tools"])
    parser = _parser(question["parser"], question, request)
    text, ids, content = "", [], ""
    calls: dict[int, list[str]] = {}

    def take(delta: Any) -> str:
        for call in (delta.tool_calls if delta is not None else None) or []:
            one = calls.setdefault(call.index, ["", ""])
            one[0] += (call.function.name if call.function else None) or ""
            one[1] += (call.function.arguments if call.function else None) or ""
        return (delta.content if delta is not None else None) or ""

    for piece in question["pieces"]:
        new = parser.model_tokenizer.encode(piece)
        arguments = (text, text + piece, piece, list(ids), [*ids, *new], new, request)
        content += take(parser.extract_tool_calls_streaming(*arguments))
        text, ids = text + piece, [*ids, *new]
    if hasattr(parser, "finish_streaming"):
        content += take(parser.finish_streaming())
    return {"content": content, "calls": [calls[index] for index in sorted(calls)]}


def _thinker(question: dict[str, Any]) -> Any:
    from vllm.reasoning import ReasoningParserManager

    # However a template is told to let the model think.
    wishes = {"thinking": True, "enable_thinking": True, "reasoning_effort": "high"}
    parser = ReasoningParserManager.get_reasoning_parser(question["reasoning"])
    return parser(Vocabulary(question["specials"]), chat_template_kwargs=wishes)


def thought_whole(question: dict[str, Any]) -> dict[str, Any]:
    """Reasoning and the rest, read at once."""
    found = _thinker(question).extract_reasoning("".join(question["pieces"]), _request([]))
    return {"reasoning": found[0] or "", "content": found[1] or ""}


def thought_streamed(question: dict[str, Any]) -> dict[str, Any]:
    """Reasoning and the rest, piece by piece."""
    parser = _thinker(question)
    text, ids = "", []
    out = {"reasoning": "", "content": ""}

    def take(delta: Any) -> None:
        for name in out:
            out[name] += (getattr(delta, name, None) if delta is not None else None) or ""

    for piece in question["pieces"]:
        new = parser.model_tokenizer.encode(piece)
        take(parser.extract_reasoning_streaming(text, text + piece, piece, list(ids), [*ids, *new], new))
        text, ids = text + piece, [*ids, *new]
    if hasattr(parser, "finish_streaming"):
        take(parser.finish_streaming())
    return out


def names() -> dict[str, Any]:
    """All parsers by name."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    return {
        "tools": ToolParserManager.list_registered(),
        "reasoning": ReasoningParserManager.list_registered(),
    }


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Both readings; an error is an answer too."""
    if "names" in question:
        return names()
    out: dict[str, Any] = {}
    thinks = "reasoning" in question
    readers = (thought_whole, thought_streamed) if thinks else (whole, streamed)
    for name, read in zip(("whole", "streamed"), readers, strict=True):
        try:
            out[name] = read(question)
        except Exception as error:
            out[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    return out


def main() -> None:
    # Whatever is printed goes elsewhere: the pipe is for answers.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        pipe.write(json.dumps(answer(json.loads(line))) + "\n")
        pipe.flush()


if __name__ == "__main__":
    main()
