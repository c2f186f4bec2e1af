"""The wire types of Messages: every field nullable where null means absent; unknown fields are tolerated (spec
agentic-apis 6.1)."""

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from smg.api.sampling import INT32, Positive, Share, TopP, Unsupported

MAX_STOPS = 64
MIN_BUDGET = 1024

_BLOCK = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["text", "image", "document", "tool_use", "tool_result", "thinking"]},
        "text": {"type": "string"},
    },
}
_TEXT = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
_TURN = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["user", "assistant", "system"]},
        "content": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"anyOf": [_TEXT, _BLOCK]}},
            ]
        },
    },
}
_TOOL = {
    "type": "object",
    "required": ["name", "input_schema"],
    "properties": {
        "type": {"enum": ["custom", None]},
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "input_schema": {"type": "object"},
        "strict": {"type": "boolean"},
    },
}

Turns: TypeAlias = Annotated[
    list[Any],
    Meta(description="the conversation so far", extra_json_schema={"minItems": 1, "items": _TURN}),
]
System: TypeAlias = Annotated[
    str | list[Any], Meta(description="a text, or blocks of text", extra_json_schema={"items": _TEXT})
]
Tools: TypeAlias = Annotated[
    list[Any],
    Meta(description="what the model may call, and the client runs", extra_json_schema={"items": _TOOL}),
]
Choice: TypeAlias = Annotated[
    Any,
    Meta(
        description="auto, any, none, or a tool by its name",
        extra_json_schema={
            "type": ["object", "null"],
            "required": ["type"],
            "properties": {
                "type": {"enum": ["auto", "any", "tool", "none"]},
                "name": {"type": "string"},
                "disable_parallel_tool_use": {"type": "boolean"},
            },
        },
    ),
]
ThinkingConfig: TypeAlias = Annotated[
    Any,
    Meta(
        description="whether the model is to think, and whether the client is shown what",
        extra_json_schema={
            "type": ["object", "null"],
            "required": ["type"],
            "properties": {
                "type": {"enum": ["enabled", "adaptive", "disabled", "between_tools"]},
                "budget_tokens": {"type": "integer", "minimum": MIN_BUDGET},
                "display": {"enum": ["summarized", "omitted", None]},
            },
        },
    ),
]


class JsonFormat(msgspec.Struct):
    """The only form an answer can be bound to; ``schema`` is a JSON schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    """``effort`` is low, medium, high, xhigh or max; ``format`` bounds the text of the answer."""

    effort: str | None = None
    format: JsonFormat | None = None


class Metadata(msgspec.Struct):
    user_id: str | None = None


class PromptBody(msgspec.Struct):
    """What the prompt is made of. Messages and tools stay plain objects here; their own decoders know the path of what
    is wrong inside them."""

    needs: ClassVar[tuple[str, ...]] = ("messages",)

    model: str | None = None
    messages: Turns | None = None
    system: System | None = None
    tools: Tools | None = None
    tool_choice: Choice = None
    thinking: ThinkingConfig = None
    output_config: OutputConfig | None = None
    # What output_config.format was called first.
    output_format: JsonFormat | None = None
    mcp_servers: Unsupported = None


class MessagesBody(PromptBody):
    """The body of a request for an answer."""

    needs: ClassVar[tuple[str, ...]] = ("messages", "max_tokens")

    max_tokens: Positive | None = None
    stream: bool | None = None
    temperature: Share | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Meta(ge=0, le=INT32, description="0 for all")] | None = None
    stop_sequences: (
        Annotated[
            list[str],
            Meta(
                description="strings that end the answer",
                max_length=MAX_STOPS,
                extra_json_schema={"items": {"type": "string", "minLength": 1}},
            ),
        ]
        | None
    ) = None
    metadata: Metadata | None = None
    container: Unsupported = None


class CountBody(PromptBody):
    """The body of a request for the number of a prompt's tokens."""


class Turn(msgspec.Struct):
    content: str | list[Any]


class TextBlock(msgspec.Struct):
    kind: ClassVar = "text"

    text: str


class ImageBlock(msgspec.Struct):
    kind: ClassVar = "image"

    source: dict[str, Any]


class DocumentBlock(msgspec.Struct):
    kind: ClassVar = "document"

    source: dict[str, Any]
    title: str | None = None
    context: str | None = None


class ThinkingBlock(msgspec.Struct):
    kind: ClassVar = "thinking"

    thinking: str
    signature: str | None = None


class ToolUseBlock(msgspec.Struct):
    kind: ClassVar = "tool_use"

    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(msgspec.Struct):
    """``content`` is a text or blocks of text, images and documents; nothing for a tool that says nothing."""

    kind: ClassVar = "tool_result"

    tool_use_id: str
    content: str | list[Any] | None = None
    is_error: bool | None = None


class Base64Source(msgspec.Struct):
    data: str
    media_type: str


class UrlSource(msgspec.Struct):
    url: str


class TextSource(msgspec.Struct):
    data: str


class ContentSource(msgspec.Struct):
    content: str | list[Any]


class CustomTool(msgspec.Struct):
    """A tool that the client runs."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class AutoChoice(msgspec.Struct):
    """Also what ``any`` looks like."""

    disable_parallel_tool_use: bool | None = None


class ToolChoice(msgspec.Struct):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(msgspec.Struct):
    pass


class EnabledThinking(msgspec.Struct):
    budget_tokens: Annotated[int, Meta(ge=MIN_BUDGET)]
    display: Literal["summarized", "omitted"] | None = None


class AdaptiveThinking(msgspec.Struct):
    """Also what ``between_tools`` looks like."""

    display: Literal["summarized", "omitted"] | None = None


class DisabledThinking(msgspec.Struct):
    pass


class ThinkingTokens(msgspec.Struct):
    thinking_tokens: int


class UsageBody(msgspec.Struct):
    """Counts in tokens. ``input_tokens`` are those of the prompt that were not read from the engine's cache."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens_details: ThinkingTokens | UnsetType = UNSET


class MessageBody(msgspec.Struct):
    """A whole answer, or the beginning of one that is streamed."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    stop_sequence: str | None
    usage: UsageBody


class TokenCount(msgspec.Struct):
    input_tokens: int


class MessagesErrorFields(msgspec.Struct):
    type: str
    message: str


class MessagesError(msgspec.Struct):
    """An error as Anthropic's clients read it."""

    type: Literal["error"]
    error: MessagesErrorFields
    request_id: str
