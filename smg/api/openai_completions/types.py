"""The wire types of completions: the body, and the buffered answer."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from smg.api.openai_parts import UsageBody
from smg.api.prompts import AnyPrompt
from smg.api.sampling import Count, OpenAIBody

MAX_CHOICES = 128
MAX_BEST_OF = 20
MAX_LOGPROBS = 5
# What generates at most when the client says nothing, as OpenAI's own default.
DEFAULT_MAX_TOKENS = 16


class CompletionBody(OpenAIBody):
    """The body: OpenAI's fields, then the engines' extras.

    ``add_special_tokens`` false keeps the tokenizer from putting its BOS in front of a text prompt.
    """

    needs: ClassVar = ("prompt",)

    prompt: AnyPrompt | None = None
    suffix: str | None = None
    max_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Meta(ge=0, le=MAX_BEST_OF)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None


class CompletionLogprobs(msgspec.Struct):
    """Parallel lists, one entry per token. ``text_offset`` counts characters from the start of the choice's text.

    The first token of an echoed prompt has no probability: null.
    """

    tokens: list[str] = msgspec.field(default_factory=list)
    token_logprobs: list[float | None] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = msgspec.field(default_factory=list)
    text_offset: list[int] = msgspec.field(default_factory=list)


class CompletionChoice(msgspec.Struct):
    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    matched_stop: int | str | UnsetType = UNSET


class Completion(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBody
