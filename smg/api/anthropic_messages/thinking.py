"""Decodes ``thinking`` and the effort (spec agentic-apis 6.1, 6.4; text-pipeline 14).

Engines have no limit on reasoning alone, so a budget only says how much effort is meant, to templates that have a word
for that.
"""

from typing import Any

import msgspec

from smg.api.anthropic_messages import types
from smg.api.anthropic_messages.options import Display
from smg.core.errors import bad_request
from smg.core.wire import Union, Unknown

_CONFIGS: Union[Any] = Union(
    {
        "enabled": types.EnabledThinking,
        "adaptive": types.AdaptiveThinking,
        "between_tools": types.AdaptiveThinking,
        "disabled": types.DisabledThinking,
    }
)
# Budgets below these many tokens are little and medium effort.
_LITTLE = 4096
_MEDIUM = 16384


class Thinking(msgspec.Struct, frozen=True):
    """``wish`` is for the template's toggle, None when the client has not said; ``effort`` for the template."""

    wish: bool | None = None
    effort: str | None = None
    display: Display = "dropped"


def thinking(body: types.PromptBody, max_tokens: int | None) -> Thinking:
    """Decode both. Raises GatewayError (400) naming the field."""
    effort = None if body.output_config is None else body.output_config.effort
    if body.thinking is None:
        return Thinking(effort=effort)
    config = _CONFIGS.one(body.thinking, "thinking")
    match config:
        case types.DisabledThinking():
            return Thinking(False, effort)
        case types.AdaptiveThinking():
            return Thinking(True, effort, _display(config.display))
        case types.EnabledThinking(budget_tokens=budget):
            if max_tokens is not None and budget >= max_tokens:
                raise bad_request("must be less than max_tokens", "thinking.budget_tokens")
            return Thinking(True, effort or _effort(budget), _display(config.display))
        case Unknown(type=name):
            known = "enabled, adaptive or disabled"
            raise bad_request(f"unknown kind of thinking '{name}', expected {known}", "thinking.type")
    raise AssertionError(config)


def _display(given: str | None) -> Display:
    return "omitted" if given == "omitted" else "shown"


def _effort(budget: int) -> str:
    return "low" if budget < _LITTLE else "medium" if budget < _MEDIUM else "high"
