"""Objects that several OpenAI dialects print alike: usage and log probabilities."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from smg.core.batch import TokenLogprobs
from smg.core.events import Usage
from smg.core.stream import Decoder

# What stands for a log probability an engine has no value for, as OpenAI does for very unlikely tokens.
UNLIKELY = -9999.0


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """Tokens of a draft model are told when there is one."""

    reasoning_tokens: int
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET


class UsageBody(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


def usage(counts: Usage) -> UsageBody:
    """The ``usage`` object (spec text-pipeline 10)."""
    details = CompletionTokensDetails(counts.reasoning_tokens)
    if counts.spec_draft_tokens:
        details.accepted_prediction_tokens = counts.spec_accepted_tokens
        details.rejected_prediction_tokens = counts.spec_draft_tokens - counts.spec_accepted_tokens
    return UsageBody(
        counts.prompt_tokens,
        counts.completion_tokens,
        counts.prompt_tokens + counts.completion_tokens,
        PromptTokensDetails(counts.cached_tokens),
        details,
    )


def logprobs(rows: Sequence[TokenLogprobs], decoder: Decoder) -> dict[str, Any]:
    """The ``logprobs`` object of a chat choice: one entry per token.

    ``bytes`` are the token's own, exact also where a character spans tokens; ``token`` is their text as far as it is
    UTF-8.
    """
    return {"content": [_entry(row, decoder) for row in rows], "refusal": None}


def _entry(row: TokenLogprobs, decoder: Decoder) -> dict[str, Any]:
    top = [_token(token, value, decoder) for token, value in row.top]
    return {**_token(row.token, row.logprob, decoder), "top_logprobs": top}


def _token(token: int, value: float | None, decoder: Decoder) -> dict[str, Any]:
    if 0 <= token < decoder.size:
        data = decoder.token_bytes(token)
        text = data.decode("utf-8", "replace")
    else:
        text = f"<token_{token}>"
        data = text.encode()
    return {"token": text, "logprob": UNLIKELY if value is None else value, "bytes": list(data)}
