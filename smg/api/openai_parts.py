"""Objects that several OpenAI dialects print alike: usage and log probabilities."""

from collections.abc import Sequence
from typing import Any

from smg.core.batch import TokenLogprobs
from smg.core.events import Usage
from smg.core.stream import Decoder

# What stands for a log probability an engine has no value for, as OpenAI does for very unlikely tokens.
UNLIKELY = -9999.0


def usage(counts: Usage) -> dict[str, Any]:
    """The ``usage`` object (spec text-pipeline 10)."""
    details: dict[str, int] = {"reasoning_tokens": counts.reasoning_tokens}
    if counts.spec_draft_tokens:
        details["accepted_prediction_tokens"] = counts.spec_accepted_tokens
        details["rejected_prediction_tokens"] = counts.spec_draft_tokens - counts.spec_accepted_tokens
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
        "completion_tokens_details": details,
    }


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
