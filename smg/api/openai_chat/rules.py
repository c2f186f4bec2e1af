"""Rules between the fields of a chat request (spec api-and-ops 1.5; text-pipeline 17); limits are in the types."""

from smg.api.openai_chat.types import ChatBody
from smg.api.sampling import refuse
from smg.core.errors import GatewayError, bad_request

_UNSUPPORTED = ("return_hidden_states", "return_audio", "session_params")


def check(body: ChatBody) -> None:
    """Check everything that concerns plain fields. Raises GatewayError naming the first that is wrong."""
    refuse(body, _UNSUPPORTED)
    if body.modalities and body.modalities != ["text"]:
        raise GatewayError("unsupported_parameter", "only text can be generated", param="modalities")
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_request("best_of must equal n", "best_of")
    if body.continue_final_message and body.add_generation_prompt:
        raise bad_request("continue_final_message excludes add_generation_prompt", "continue_final_message")


def max_tokens(body: ChatBody) -> int | None:
    """The limit on generated tokens: ``max_completion_tokens``, else its old name ``max_tokens``."""
    return body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
