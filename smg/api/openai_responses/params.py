"""Where the body has what went wrong: other layers name chat's fields, some of which are called otherwise here."""

import re

from smg.core.errors import GatewayError

_NAMES = (
    (re.compile(r"^messages$"), "input"),
    (re.compile(r"^response_format(?:\.json_schema)?"), "text.format"),
    (re.compile(r"^max_(?:completion_)?tokens$"), "max_output_tokens"),
    (re.compile(r"^reasoning_effort$"), "reasoning.effort"),
    (re.compile(r"^logprobs$"), "include"),
    (re.compile(r"^(tools\[\d+\]|tool_choice(?:\.tools\[\d+\])?)\.(?:function|custom)\b"), r"\1"),
)


def named(error: GatewayError) -> GatewayError:
    """``error`` with its ``param`` as clients of this dialect write it."""
    if error.param is not None:
        for pattern, name in _NAMES:
            error.param = pattern.sub(name, error.param)
    return error
