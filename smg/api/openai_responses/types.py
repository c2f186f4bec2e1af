"""The wire types of a responses request: every field nullable, because null means absent; unknown ones are tolerated.

Limits are those of spec agentic-apis 4.1.
"""

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from smg.api.sampling import Count, Positive, Refused, SamplingBody, Unsupported

MAX_TOP_LOGPROBS = 20
MAX_METADATA = 16

INCLUDES = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)

_ITEM = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "type": {"const": "message"},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["type", "text"],
                        "properties": {
                            "type": {"enum": ["input_text", "output_text"]},
                            "text": {"type": "string", "minLength": 1},
                        },
                    },
                },
            ]
        },
    },
}
_TOOL = {
    "type": "object",
    "required": ["type", "name"],
    "properties": {
        "type": {"enum": ["function", "custom"]},
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "parameters": {"type": "object"},
        "strict": {"type": "boolean"},
    },
}

Input: TypeAlias = Annotated[
    str | list[Any],
    Meta(
        description="a text, or the items of the conversation",
        extra_json_schema={
            "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": _ITEM}]
        },
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
Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=MAX_METADATA)
]


class Reasoning(msgspec.Struct):
    """``effort`` goes to the chat template; the model's reasoning is returned as it is, and no ``summary`` of it."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextOptions(msgspec.Struct):
    """``format`` bounds the output; ``verbosity`` is tolerated."""

    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(msgspec.Struct):
    """Usage is in the last event in any case, and nothing is padded."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class PromptBody(SamplingBody):
    """What a prompt is made of, and what the routes have in common."""

    needs: ClassVar = ("input",)

    model: str | None = None
    input: Input | None = None
    instructions: str | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    messages: Unsupported = None
    response_format: Unsupported = None
    max_tokens: Unsupported = None
    max_completion_tokens: Unsupported = None
    reasoning_effort: Unsupported = None
    functions: Unsupported = None
    n: Any = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: Refused = None
    context_management: Unsupported = None
    chat_template_kwargs: dict[str, Any] | None = None


class ResponsesBody(PromptBody):
    """The body of a request: OpenAI's fields, then the engines' extras."""

    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    include: list[str] | None = None
    max_output_tokens: Positive | None = None
    max_tool_calls: Positive | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    user: str | None = None

    min_tokens: Count | None = None
    lora_path: str | None = None
    data_parallel_rank: Count | None = None


class MessageItem(msgspec.Struct):
    """``type`` may be missing. What only answers have (``id``, ``status``, ``phase``) is not looked at."""

    role: str
    content: str | list[Any] | None = None


class SummaryText(msgspec.Struct):
    text: str


class ReasoningItem(msgspec.Struct):
    """``encrypted_content`` of others cannot be read, and is ignored."""

    content: list[SummaryText] | None = None
    summary: list[SummaryText] | None = None


class FunctionCallItem(msgspec.Struct):
    """``arguments`` is JSON text; some clients send the object itself."""

    call_id: str
    name: str
    arguments: str | dict[str, Any] | None = None


class CustomCallItem(msgspec.Struct):
    call_id: str
    name: str
    input: str = ""


class CallOutputItem(msgspec.Struct):
    """What a function or a custom tool has returned, maybe nothing."""

    call_id: str
    output: str | list[Any]


class Text(msgspec.Struct):
    text: str


class Refusal(msgspec.Struct):
    refusal: str


class InputImage(msgspec.Struct):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class InputFile(msgspec.Struct):
    """``file_data`` is a data URL, or base64 of a text."""

    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class FunctionTool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomTool(msgspec.Struct):
    """``format`` is text, or a grammar with its ``syntax`` and ``definition``."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class SchemaFormat(msgspec.Struct):
    """``text.format`` of type ``json_schema``."""

    name: str
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None
