"""Decodes the messages of a chat request into canonical turns (spec text-pipeline 8, 17; field case OA-08)."""

from typing import Any

from smg._native import base64
from smg.api.openai_chat import types
from smg.core.errors import bad_request
from smg.core.request import (
    MediaPart,
    Message,
    Part,
    RawPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    arguments_text,
)
from smg.core.wire import Union, Unknown, join

_MESSAGES: Union[Any] = Union(
    {
        "system": types.SystemMessage,
        "developer": types.SystemMessage,
        "user": types.UserMessage,
        "assistant": types.AssistantMessage,
        "tool": types.ToolMessage,
        "function": types.FunctionMessage,
    },
    tag="role",
)
_PARTS: Union[Any] = Union(
    {
        "text": types.Text,
        "refusal": types.RefusalText,
        "reasoning": types.ReasoningText,
        "thinking": types.ReasoningText,
        "image_url": types.ImageUrl,
        "video_url": types.VideoUrl,
        "video": types.Video,
        "audio_url": types.AudioUrl,
        "input_audio": types.InputAudio,
    },
    default="text",
)
_CALLS: Union[Any] = Union({"function": types.FunctionToolCall, "custom": types.CustomToolCall}, default="function")


def messages(values: list[Any] | None) -> list[Message]:
    """Decode ``messages``. Raises GatewayError naming the field."""
    if not values:
        raise bad_request("at least one message is needed", "messages")
    wires = _MESSAGES.many(values, "messages")
    return [_message(values[index]["role"], wire, f"messages[{index}]") for index, wire in enumerate(wires)]


def _message(role: str, wire: Any, path: str) -> Message:
    if isinstance(wire, Unknown):
        known = "system, developer, user, assistant, tool or function"
        raise bad_request(f"unknown role '{wire.type}', expected {known}", f"{path}.role")
    content = _content(wire.content, f"{path}.content")
    match wire:
        case types.UserMessage():
            if not content:
                raise bad_request("a user message must not be empty", f"{path}.content")
            return Message(role, content, name=wire.name)
        case types.AssistantMessage():
            return _assistant(wire, content, path)
        case types.ToolMessage():
            return Message(role, _present(content, path), name=wire.name, tool_call_id=wire.tool_call_id)
        case types.FunctionMessage():
            return Message("tool", _present(content, path), name=wire.name)
    return Message(role, _present(content, path), name=wire.name)


def _present(content: str | list[Part] | None, path: str) -> str | list[Part]:
    if content is None:
        raise bad_request("content is missing", f"{path}.content")
    return content


def _assistant(wire: types.AssistantMessage, content: str | list[Part] | None, path: str) -> Message:
    if content is None and wire.refusal:
        content = [RefusalPart(wire.refusal)]
    calls = _calls(wire.tool_calls or [], f"{path}.tool_calls")
    if wire.function_call is not None:
        calls.append(ToolCall("", wire.function_call.name, _arguments(wire.function_call)))
    reasoning = wire.reasoning_content if wire.reasoning_content is not None else wire.reasoning
    return Message("assistant", content, name=wire.name, reasoning=reasoning, tool_calls=calls)


def _calls(values: list[Any], path: str) -> list[ToolCall]:
    calls = []
    for index, wire in enumerate(_CALLS.many(values, path)):
        match wire:
            case types.FunctionToolCall():
                calls.append(ToolCall(wire.id or "", wire.function.name, _arguments(wire.function)))
            case types.CustomToolCall():
                calls.append(ToolCall(wire.id or "", wire.custom.name, wire.custom.input, kind="custom"))
            case Unknown():
                raise bad_request(f"unknown kind of call '{wire.type}'", f"{path}[{index}].type")
    return calls


def _arguments(call: types.FunctionCall) -> str:
    if isinstance(call.arguments, dict):
        return arguments_text(call.arguments)
    return call.arguments or ""


def _content(value: str | list[Any] | None, path: str) -> str | list[Part] | None:
    if not isinstance(value, list):
        return value
    # A bare string among the parts is text: some frameworks send lists of strings.
    objects = [{"type": "text", "text": item} if isinstance(item, str) else item for item in value]
    return [_part(objects[i], wire, f"{path}[{i}]") for i, wire in enumerate(_PARTS.many(objects, path))]


def _part(value: dict[str, Any], wire: Any, path: str) -> Part:
    match wire:
        case types.Text():
            return TextPart(wire.text)
        case types.RefusalText():
            return RefusalPart(wire.refusal)
        case types.ReasoningText():
            return ReasoningPart(wire.text or wire.thinking or "", signature=wire.signature)
        case types.ImageUrl():
            return _media("image", wire.image_url, value, join(path, "image_url"))
        case types.VideoUrl():
            return _media("video", wire.video_url, value, join(path, "video_url"))
        case types.Video():
            return _media("video", wire.video, value, join(path, "video"))
        case types.AudioUrl():
            return _media("audio", wire.audio_url, value, join(path, "audio_url"))
        case types.InputAudio():
            return _audio(wire.input_audio, join(path, "input_audio.data"))
    return RawPart(wire.type, wire.raw)


def _media(kind: str, source: str | dict[str, Any], value: dict[str, Any], path: str) -> MediaPart:
    options = {key: item for key, item in value.items() if key in ("uuid", "fps", "max_frames")}
    if isinstance(source, dict):
        options.update({key: item for key, item in source.items() if key != "url"})
        source = source.get("url", "")
    if not isinstance(source, str) or not source:
        raise bad_request("a URL is needed", join(path, "url"))
    return MediaPart(kind, url=source, options=options)


def _audio(audio: types.AudioData, path: str) -> MediaPart:
    try:
        data = base64.decode(audio.data)
    except ValueError:
        raise bad_request("not valid base64", path) from None
    if not data:
        raise bad_request("the recording is empty", path)
    return MediaPart("audio", data=data, media_type=f"audio/{audio.format}")
