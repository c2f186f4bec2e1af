"""The response object, whole, and what of it is known when the request is (spec agentic-apis 4.6)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from smg.api.dialect import Meta
from smg.api.openai_responses.items import Item
from smg.core import clock
from smg.core.errors import GatewayError
from smg.core.events import Finish, Usage

# Why an answer is incomplete, by the reason of its end.
_INCOMPLETE: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesOptions(msgspec.Struct, frozen=True):
    """What only the encoder of this dialect needs to know of the request.

    ``id`` is the response's, ``echo`` the JSON object of the request's own fields as they are returned.
    """

    id: str = ""
    echo: bytes = b"{}"


def options(meta: Meta) -> ResponsesOptions:
    """The options of a request in this dialect."""
    found = meta.request.options
    return found if isinstance(found, ResponsesOptions) else ResponsesOptions()


def outcome(finish: Finish | None) -> tuple[str, str | None]:
    """Status of a response that ended with ``finish``, and why it is incomplete."""
    reason = None if finish is None else _INCOMPLETE.get(finish.reason)
    return ("completed" if reason is None else "incomplete"), reason


def response(
    meta: Meta,
    status: str,
    items: Sequence[Item] = (),
    usage: Usage | None = None,
    *,
    incomplete: str | None = None,
    error: GatewayError | None = None,
) -> msgspec.Raw:
    """The object as JSON."""
    fixed = options(meta)
    own = {
        "id": fixed.id,
        "object": "response",
        "created_at": meta.created,
        "completed_at": clock.created() if status == "completed" else None,
        "status": status,
        "error": None if error is None else {"code": _code(error), "message": error.message},
        "incomplete_details": None if incomplete is None else {"reason": incomplete},
        "model": meta.model,
        "output": [item.body() for item in items],
        "usage": None if usage is None else _usage(usage),
    }
    return msgspec.Raw(msgspec.json.encode(own)[:-1] + b"," + fixed.echo[1:])


def _code(error: GatewayError) -> str:
    """The code by OpenAI's list, which clients' types are made from; what is the client's own fault keeps ours."""
    if error.status == 429:
        return "rate_limit_exceeded"
    return "server_error" if error.status >= 500 else error.code


def _usage(counts: Usage) -> dict[str, Any]:
    return {
        "input_tokens": counts.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counts.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }
