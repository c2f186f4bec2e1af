"""Small models of each format with a renderer: a byte-level vocabulary and the format's special tokens."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from smg.core.request import GenerationRequest, Message, Tool, ToolCall
from smg.text.chat import Rendered
from smg.text.registry import TextModel
from tests.text.makers import byte_level_json, write_model

DEEPSEEK = (
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"),
    *("<｜title｜>", "｜DSML｜", "<think>", "</think>"),
)
KIMI = ("[BOS]", "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")

WEATHER = Tool(
    "weather",
    "Tell the weather.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
SCHEMA = (
    '{"name": "weather", "description": "Tell the weather.", "parameters": {"type": "object", "properties": '
    '{"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}'
)


def model(directory: Path, architecture: str, specials: tuple[str, ...], template: str | None = None) -> TextModel:
    tokenizer = Tokenizer.from_str(byte_level_json())
    # As these models declare them: only some are special.
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials[:2]])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in specials[2:]])
    config = {} if template is None else {"chat_template": template}
    files = {"config": {"architectures": [architecture]}, "tokenizer_config": config}
    return TextModel(write_model(directory, tokenizer.to_str(), **files))


def render(text: TextModel, messages: list[Message], **fields: object) -> Rendered:
    request = GenerationRequest("test", "m", messages=messages, **fields)
    return text.chat(bool(request.tools)).render(request)


def user(text: str, **extra: object) -> Message:
    return Message("user", text, extra=extra)


def answer(text: str | None, *calls: ToolCall, reasoning: str | None = None) -> Message:
    return Message("assistant", text, reasoning=reasoning, tool_calls=list(calls))


def call(id: str, arguments: str) -> ToolCall:
    return ToolCall(id, "weather", arguments)


def result(id: str, text: str) -> Message:
    return Message("tool", text, tool_call_id=id)
