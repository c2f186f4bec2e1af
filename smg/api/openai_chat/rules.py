"""The rules a chat request must keep, each with the field it names (spec api-and-ops 1.5; text-pipeline 17)."""

from collections.abc import Callable
from typing import TypeAlias

from smg.api.openai_chat.types import ChatBody
from smg.core.errors import GatewayError, bad_request

MAX_STOPS = 4
MAX_CHOICES = 10
MAX_TOP_LOGPROBS = 20

_Range: TypeAlias = tuple[str, Callable[[float], bool], str]

_RANGES: tuple[_Range, ...] = (
    ("temperature", lambda value: 0 <= value <= 2, "between 0 and 2"),
    ("top_p", lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("min_p", lambda value: 0 <= value <= 1, "between 0 and 1"),
    ("repetition_penalty", lambda value: 0 <= value <= 2, "between 0 and 2"),
    ("frequency_penalty", lambda value: -2 <= value <= 2, "between -2 and 2"),
    ("presence_penalty", lambda value: -2 <= value <= 2, "between -2 and 2"),
    ("top_k", lambda value: value == -1 or value >= 1, "-1 or at least 1"),
    ("n", lambda value: 1 <= value <= MAX_CHOICES, f"between 1 and {MAX_CHOICES}"),
    ("max_completion_tokens", lambda value: value >= 1, "at least 1"),
    ("max_tokens", lambda value: value >= 1, "at least 1"),
    ("min_tokens", lambda value: value >= 0, "at least 0"),
    ("top_logprobs", lambda value: 0 <= value <= MAX_TOP_LOGPROBS, f"between 0 and {MAX_TOP_LOGPROBS}"),
    ("data_parallel_rank", lambda value: value >= 0, "at least 0"),
)

# Fields that would change the answer and that nothing here implements: refused instead of ignored.
_UNSUPPORTED = ("return_hidden_states", "return_audio", "session_params")


def check(body: ChatBody) -> None:
    """Check everything that concerns plain fields. Raises GatewayError naming the first that is wrong."""
    for name, holds, expected in _RANGES:
        value = getattr(body, name)
        if value is not None and not holds(value):
            raise bad_request(f"{name} must be {expected}, not {value}", name)
    for name in _UNSUPPORTED:
        if getattr(body, name):
            raise GatewayError("unsupported_parameter", f"{name} is not supported", param=name)
    if body.modalities and body.modalities != ["text"]:
        raise GatewayError("unsupported_parameter", "only text can be generated", param="modalities")
    _tokens(body)
    _stops(body)
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options needs stream to be true", "stream_options")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise bad_request("best_of must equal n", "best_of")
    if body.continue_final_message and body.add_generation_prompt:
        raise bad_request("continue_final_message excludes add_generation_prompt", "continue_final_message")


def _tokens(body: ChatBody) -> None:
    most = max_tokens(body)
    if body.min_tokens and most is not None and body.min_tokens > most:
        raise bad_request(f"min_tokens ({body.min_tokens}) is more than the limit of {most} tokens", "min_tokens")


def _stops(body: ChatBody) -> None:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > MAX_STOPS:
        raise bad_request(f"at most {MAX_STOPS} stop strings are allowed, not {len(stops)}", "stop")
    for index, text in enumerate(stops):
        if not text:
            where = "stop" if isinstance(body.stop, str) else f"stop[{index}]"
            raise bad_request("a stop string must not be empty", where)
    for index, token in enumerate(body.stop_token_ids or []):
        if token < 0:
            raise bad_request("a token id is at least 0", f"stop_token_ids[{index}]")


def max_tokens(body: ChatBody) -> int | None:
    """The limit on generated tokens: ``max_completion_tokens``, else its old name ``max_tokens``."""
    return body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens


def logit_bias(body: ChatBody) -> dict[int, float]:
    """Decode ``logit_bias``. Raises GatewayError for a key that is no token id or a value outside -100 to 100."""
    out = {}
    for key, value in (body.logit_bias or {}).items():
        if not (key.isascii() and key.isdigit()):
            raise bad_request(f"'{key}' is not a token id", "logit_bias")
        if not -100 <= value <= 100:
            raise bad_request(f"a bias must be between -100 and 100, not {value}", f"logit_bias.{key}")
        out[int(key)] = value
    return out
