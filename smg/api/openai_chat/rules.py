"""Rules between the fields of a chat request (spec api-and-ops 1.5; text-pipeline 17); limits are in the types."""

from typing import Any

from smg.api.openai_chat.types import ChatBody
from smg.api.sampling import refuse, refuse_openai
from smg.core.errors import GatewayError, bad_request

_UNSUPPORTED = ("return_audio", "chat_template", "echo", "mm_processor_kwargs")


def check(body: ChatBody) -> None:
    """Check everything that concerns plain fields. Raises GatewayError naming the first that is wrong."""
    refuse_openai(body)
    # An empty object asks for a search with the usual options.
    refuse(body, _UNSUPPORTED, given=("web_search_options",))
    if body.modalities and body.modalities != ["text"]:
        raise GatewayError("unsupported_parameter", "only text can be generated", param="modalities")
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_request("best_of must equal n", "best_of")
    if body.continue_final_message and body.add_generation_prompt:
        raise bad_request("continue_final_message excludes add_generation_prompt", "continue_final_message")


def template_kwargs(body: ChatBody) -> dict[str, Any]:
    """What the chat template is given beside the messages; the client's own kwargs win (spec text-pipeline 2.3)."""
    found: dict[str, Any] = {}
    if body.documents:
        found["documents"] = body.documents
    # An answer that is continued has no new turn anyway.
    if body.add_generation_prompt is False and not body.continue_final_message:
        found["add_generation_prompt"] = False
    return found | (body.chat_template_kwargs or {})


def max_tokens(body: ChatBody) -> int | None:
    """The limit on generated tokens: ``max_completion_tokens``, else its old name ``max_tokens``."""
    return body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens


def limit_paths(body: ChatBody) -> tuple[str, str]:
    """Where the body has the most and the fewest tokens to generate."""
    return ("max_tokens" if body.max_completion_tokens is None else "max_completion_tokens", "min_tokens")
