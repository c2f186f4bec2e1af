"""The wire types of both routes."""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from smg.api.openai_chat.types import Turns


def _one_or_several(kind: str) -> Meta:
    """Describes a list, or a list of lists, of ``kind``; the type system of the decoder has no such union."""
    single = {"type": kind}
    return Meta(extra_json_schema={"items": {"anyOf": [single, {"type": "array", "items": single}]}})


Tokens: TypeAlias = Annotated[list[Any], _one_or_several("integer")]
Strings: TypeAlias = Annotated[list[Any], _one_or_several("string")]


class TokenizeBody(msgspec.Struct):
    """Exactly one of ``prompt`` and ``messages``. Messages are rendered as for chat, special tokens included.

    ``add_special_tokens`` (default false) adds what the tokenizer puts around a text.
    """

    model: str | None = None
    prompt: str | list[str] | None = None
    messages: Turns | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    tools: list[Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class Tokenized(msgspec.Struct):
    """Of a list of prompts every field is a list with one entry per prompt. ``char_count`` counts code points.

    ``token_strs`` are the tokens' texts; bytes that are no UTF-8 by themselves show as U+FFFD. ``max_model_len`` is
    the model's context length in tokens, where it is known.
    """

    tokens: Tokens
    count: int | list[int]
    char_count: int | list[int]
    token_strs: Strings | UnsetType = UNSET
    max_model_len: int | UnsetType = UNSET


class DetokenizeBody(msgspec.Struct):
    """``tokens`` is one list of ids or a list of such lists."""

    tokens: Tokens
    model: str | None = None
    skip_special_tokens: bool | None = None


class Detokenized(msgspec.Struct):
    text: str | list[str]
