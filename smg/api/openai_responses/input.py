"""Decodes ``instructions`` and ``input`` into canonical turns (spec agentic-apis 4.5, 4.15; text-pipeline 15).

Items of one assistant turn stand by themselves in this dialect: reasoning, message and calls beside each other become
one turn, as models have learnt them.
"""

from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from smg._native import base64
from smg.api.openai_responses import types
from smg.api.openai_responses.tools import unsupported
from smg.core.errors import GatewayError, bad_request
from smg.core.request import MediaPart, Message, Part, RefusalPart, TextPart, ToolCall
from smg.core.wire import Union, Unknown

_ITEMS: Union[Any] = Union(
    {
        "message": types.MessageItem,
        "reasoning": types.ReasoningItem,
        "function_call": types.FunctionCallItem,
        "function_call_output": types.CallOutputItem,
        "custom_tool_call": types.CustomCallItem,
        "custom_tool_call_output": types.CallOutputItem,
    },
    default="message",
)
_PARTS: Union[Any] = Union(
    {
        "input_text": types.Text,
        "output_text": types.Text,
        "text": types.Text,
        "refusal": types.Refusal,
        "input_image": types.InputImage,
        "input_file": types.InputFile,
    }
)
_ROLES = ("user", "assistant", "system", "developer")
# Items of tools that a server runs by itself.
_HOSTED = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
        *("computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output"),
        *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
    }
)
# Items that stand for what a server has kept.
_KEPT = frozenset({"item_reference", "compaction"})


def turns(body: types.PromptBody) -> list[Message]:
    """The conversation. Raises GatewayError (400) naming the field."""
    first = [Message("system", body.instructions)] if body.instructions else []
    given = body.input
    if not given:
        raise bad_request("a text, or at least one item, is needed", "input")
    if isinstance(given, str):
        return [*first, Message("user", given)]
    wires = _ITEMS.many(given, "input")
    conversation = _Turns()
    for index, wire in enumerate(wires):
        _take(conversation, wire, f"input[{index}]")
    if not any(isinstance(wire, types.MessageItem) for wire in wires):
        raise bad_request("at least one message is needed", "input")
    return [*first, *conversation.finish()]


class _Turns:
    """Turns in the making. The assistant's last one is open: what it says, thinks and calls is added to it.

    Reasoning waits for what follows it. A second message begins a turn of its own, unless calls that still lack their
    results stand between the two.
    """

    def __init__(self) -> None:
        self._done: list[Message] = []
        self._turn: Message | None = None
        self._thought: list[str] = []

    def think(self, text: str) -> None:
        if text:
            self._thought.append(text)

    def say(self, content: str | list[Part]) -> None:
        if not content:
            return
        turn = self._turn
        if turn is not None and turn.content and not turn.tool_calls:
            self._end()
            turn = None
        turn = self._opened(turn)
        turn.content = content if not turn.content else [*_parts(turn.content), *_parts(content)]

    def call(self, call: ToolCall) -> None:
        self._opened(self._turn).tool_calls.append(call)

    def other(self, message: Message) -> None:
        """A turn of somebody else."""
        self.finish()
        self._done.append(message)

    def finish(self) -> list[Message]:
        if self._thought:
            self._opened(self._turn)
        self._end()
        return self._done

    def _opened(self, turn: Message | None) -> Message:
        if turn is None:
            turn = self._turn = Message("assistant")
        if self._thought:
            turn.reasoning = "\n".join([*([turn.reasoning] if turn.reasoning else []), *self._thought])
            self._thought.clear()
        return turn

    def _end(self) -> None:
        if self._turn is not None:
            self._done.append(self._turn)
        self._turn = None


def _take(conversation: _Turns, wire: Any, path: str) -> None:
    match wire:
        case types.MessageItem():
            _message(conversation, wire, path)
        case types.ReasoningItem():
            parts = wire.content or wire.summary or []
            conversation.think("\n".join(part.text for part in parts if part.text))
        case types.FunctionCallItem():
            arguments = wire.arguments or ""
            if isinstance(arguments, dict):
                arguments = msgspec.json.encode(arguments).decode()
            conversation.call(ToolCall(wire.call_id, wire.name, arguments, path=f"{path}.arguments"))
        case types.CustomCallItem():
            conversation.call(ToolCall(wire.call_id, wire.name, wire.input, "custom", f"{path}.input"))
        case types.CallOutputItem():
            content = _content(wire.output, f"{path}.output")
            conversation.other(Message("tool", content, tool_call_id=wire.call_id))
        case Unknown():
            raise _refused(wire.type, f"{path}.type")


def _refused(kind: str, path: str) -> GatewayError:
    if kind in _HOSTED:
        return unsupported(kind, path)
    if kind in _KEPT:
        message = f"this gateway keeps no history that an item of type '{kind}' could stand for"
        return GatewayError("unsupported_parameter", message, param=path)
    return bad_request(f"unknown type of item '{kind}'", path)


def _message(conversation: _Turns, wire: types.MessageItem, path: str) -> None:
    if wire.role not in _ROLES:
        raise bad_request(f"unknown role '{wire.role}', expected user, assistant, system or developer", f"{path}.role")
    content = _content(wire.content, f"{path}.content")
    if wire.role == "assistant":
        for index, part in enumerate(_parts(content)):
            if isinstance(part, MediaPart):
                raise bad_request("an assistant message can't carry media", f"{path}.content[{index}]")
        said: list[Part] = [part for part in _parts(content) if isinstance(part, TextPart | RefusalPart) and part.text]
        conversation.say(content if isinstance(content, str) else said)
        return
    if wire.content is None:
        raise bad_request("content is missing", f"{path}.content")
    if wire.role == "user" and all(isinstance(part, TextPart) and not part.text for part in _parts(content)):
        raise bad_request("a user message must not be empty", f"{path}.content")
    conversation.other(Message(wire.role, content))


def _parts(content: str | list[Part]) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return content


def _content(value: str | list[Any] | None, path: str) -> str | list[Part]:
    if not isinstance(value, list):
        return value or ""
    return [_part(wire, f"{path}[{index}]") for index, wire in enumerate(_PARTS.many(value, path))]


def _part(wire: Any, path: str) -> Part:
    match wire:
        case types.Text():
            return TextPart(wire.text)
        case types.Refusal():
            return RefusalPart(wire.refusal)
        case types.InputImage():
            return _image(wire, path)
        case types.InputFile():
            return TextPart(_file(wire, path))
    raise bad_request(f"unknown type of content '{wire.type}'", f"{path}.type")


def _image(wire: types.InputImage, path: str) -> MediaPart:
    if wire.file_id is not None:
        raise _no_files(f"{path}.file_id")
    if not wire.image_url:
        raise bad_request("a URL is needed", f"{path}.image_url")
    options = {} if wire.detail is None else {"detail": wire.detail}
    return MediaPart("image", url=wire.image_url, options=options, path=path)


def _file(wire: types.InputFile, path: str) -> str:
    """The text of a file, below its name."""
    for name in ("file_id", "file_url"):
        if getattr(wire, name) is not None:
            raise _no_files(f"{path}.{name}")
    path = f"{path}.file_data"
    if not wire.file_data:
        raise bad_request("the file's data is missing", path)
    try:
        text = _bytes(wire.file_data).decode()
    except UnicodeDecodeError:
        text = "\0"
    except ValueError:
        raise bad_request("neither a data URL nor valid base64", path) from None
    # A PDF may well be UTF-8, and is no text.
    if "\0" in text or text.startswith("%PDF-"):
        raise GatewayError("unsupported_parameter", "only files of text in UTF-8 can be read", param=path)
    return f"[{wire.filename}]\n{text}" if wire.filename else text


def _bytes(data: str) -> bytes:
    """What a data URL or base64 stands for. Raises ValueError."""
    if data[:5].lower() != "data:":
        return base64.decode(data)
    head, comma, rest = data.partition(",")
    if not comma:
        raise ValueError("no data")
    return base64.decode(rest) if head.lower().endswith(";base64") else unquote_to_bytes(rest)


def _no_files(path: str) -> GatewayError:
    message = "this gateway keeps and fetches no files; send the file itself, as file_data or as an image's data URL"
    return GatewayError("unsupported_parameter", message, param=path)
