"""The wire types of a chat request: every field nullable, because null means absent; unknown fields are tolerated."""

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from smg.api.sampling import OpenAIBody, Positive, Refused, Unsupported

MAX_CHOICES = 10
MAX_TOP_LOGPROBS = 20

_TEXT_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
_MEDIA_PART = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": ["image_url", "video_url", "audio_url", "input_audio"]}},
}
_CONTENT = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "items": {"anyOf": [_TEXT_PART, _MEDIA_PART]}},
    ]
}
_TURN = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["system", "developer", "user", "tool"]}, "content": _CONTENT},
}
_ASSISTANT_TURN = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"const": "assistant"},
        "content": {"anyOf": [*_CONTENT["anyOf"], {"type": "null"}]},
        "reasoning_content": {"type": ["string", "null"]},
        "tool_calls": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "type", "function"],
                "properties": {
                    "id": {"type": "string"},
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
                    },
                },
            },
        },
    },
}
_TOOL = {
    "type": "object",
    "required": ["type", "function"],
    "properties": {
        "type": {"const": "function"},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "description": {"type": "string"},
                "parameters": {"type": "object"},
                "strict": {"type": "boolean"},
            },
        },
    },
}

Turns: TypeAlias = Annotated[
    list[Any],
    Meta(
        description="the conversation so far",
        extra_json_schema={"minItems": 1, "items": {"anyOf": [_TURN, _ASSISTANT_TURN]}},
    ),
]
Tools: TypeAlias = Annotated[list[Any], Meta(description="what the model may call", extra_json_schema={"items": _TOOL})]
ToolChoice: TypeAlias = Annotated[
    Any,
    Meta(
        description="none, auto, required, or an object that names a tool or a subset",
        extra_json_schema={
            "anyOf": [{"enum": ["none", "auto", "required", None]}, {"type": "object", "required": ["type"]}]
        },
    ),
]


class ChatBody(OpenAIBody):
    """The body of a chat request: OpenAI's fields, then the engines' extras.

    Unions (messages, tools, tool_choice, response_format) stay plain objects here; their own decoders know the path
    of what is wrong inside them.
    """

    needs: ClassVar = ("messages",)

    messages: Turns | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_completion_tokens: Positive | None = None
    max_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    reasoning_effort: str | int | float | None = None
    modalities: list[str] | None = None

    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    best_of: int | None = None
    return_audio: Unsupported = None
    chat_template: Unsupported = None
    echo: Unsupported = None
    mm_processor_kwargs: Unsupported = None
    web_search_options: Refused = None


class SystemMessage(msgspec.Struct):
    content: str | list[Any] | None = None
    name: str | None = None


class UserMessage(msgspec.Struct):
    content: str | list[Any] | None = None
    name: str | None = None


class FunctionCall(msgspec.Struct):
    """``arguments`` is JSON text; some clients send the object itself, or nothing for a call without arguments."""

    name: str
    arguments: str | dict[str, Any] | None = None


class CustomCall(msgspec.Struct):
    name: str
    input: str = ""


class FunctionToolCall(msgspec.Struct):
    function: FunctionCall
    id: str | None = None


class CustomToolCall(msgspec.Struct):
    custom: CustomCall
    id: str | None = None


class AssistantMessage(msgspec.Struct):
    content: str | list[Any] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    function_call: FunctionCall | None = None


class ToolMessage(msgspec.Struct):
    content: str | list[Any] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class FunctionMessage(msgspec.Struct):
    """The result of a legacy ``function_call``."""

    name: str
    content: str | list[Any] | None = None


class Text(msgspec.Struct):
    text: str


class RefusalText(msgspec.Struct):
    refusal: str


class ReasoningText(msgspec.Struct):
    """A part of type ``reasoning`` or ``thinking``."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None


class ImageUrl(msgspec.Struct):
    image_url: str | dict[str, Any]


class VideoUrl(msgspec.Struct):
    video_url: str | dict[str, Any]


class Video(msgspec.Struct):
    """A part of type ``video``, as Qwen's own examples write it: a URL, or an object that has one."""

    video: str | dict[str, Any]


class AudioUrl(msgspec.Struct):
    audio_url: str | dict[str, Any]


class AudioData(msgspec.Struct):
    data: str
    format: str = "wav"


class InputAudio(msgspec.Struct):
    input_audio: AudioData


class Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(msgspec.Struct):
    function: Function


class CustomDefinition(msgspec.Struct):
    """``format`` is text, or a grammar with its definition and syntax: nested as in chat, or flat as in Responses."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class GrammarFormat(msgspec.Struct):
    definition: str
    syntax: Literal["lark", "regex"]


class CustomTool(msgspec.Struct):
    custom: CustomDefinition
