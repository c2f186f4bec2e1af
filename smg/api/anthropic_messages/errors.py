"""Errors as Anthropic's clients read them (spec agentic-apis 2; case MS-09)."""

import re
from typing import Any

from smg.core.errors import ContextLengthExceeded, GatewayError, anthropic_shape

_INDEX = re.compile(r"\[(\d+)\]")
# How engines refuse a prompt whose limits the gateway does not know: the context, the prompt, what is to be generated.
_LONGEST = re.compile(r"(?:maximum )?context length (?:is |of |\()(\d+)")
_PROMPT = re.compile(r"(\d+) (?:tokens )?(?:in|from) the (?:input )?(?:messages|prompt)|input \((\d+) tokens\)")
_OUTPUT = re.compile(r"(\d+) (?:tokens )?(?:in|for) the completion")
_BUSY = 529


def status(error: GatewayError) -> int:
    """The HTTP status; having no room, now, has one of its own."""
    return _BUSY if error.status == 503 else error.status


def shape(error: GatewayError, request_id: str) -> dict[str, Any]:
    """The body; paths are written with dots, as in ``messages.3.content.1``."""
    message = _too_long(error)
    param = None if error.param is None or message else _INDEX.sub(r".\1", error.param)
    told = GatewayError(error.code, message or error.message, param=param, status=error.status)
    return anthropic_shape(told, request_id)


def _too_long(error: GatewayError) -> str:
    """What is said of a prompt that is too long, in the words that clients look for to shorten it; else empty."""
    if isinstance(error, ContextLengthExceeded):
        return _words(error.prompt, error.output, error.longest)
    if error.status != 400:
        return ""
    longest, prompt, output = (pattern.search(error.message) for pattern in (_LONGEST, _PROMPT, _OUTPUT))
    if longest is None or prompt is None:
        return ""
    return _words(int(prompt[1] or prompt[2]), int(output[1]) if output else 0, int(longest[1]))


def _words(prompt: int, output: int, longest: int) -> str:
    if prompt >= longest or not output:
        return f"prompt is too long: {prompt} tokens > {longest} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {longest}, "
        "decrease input length or `max_tokens` and try again"
    )
