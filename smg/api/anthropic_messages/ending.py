"""What an answer ends with: usage and stop reason (spec agentic-apis 6.2; text-pipeline 14; cases MS-08, OA-05)."""

from collections.abc import Mapping

from msgspec import UNSET

from smg.api.anthropic_messages.types import ThinkingTokens, UsageBody
from smg.core.events import Finish, Usage

_REASONS: Mapping[str, str] = {"tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def usage(counts: Usage) -> UsageBody:
    """The counts as Anthropic has them: what was read from a cache is not among ``input_tokens``.

    Engines tell no difference between nothing cached and nothing known of a cache, so a zero is not told.
    """
    cached = counts.cached_tokens
    return UsageBody(
        input_tokens=max(0, counts.prompt_tokens - cached),
        output_tokens=counts.completion_tokens,
        cache_creation_input_tokens=0 if cached else UNSET,
        cache_read_input_tokens=cached or UNSET,
        output_tokens_details=ThinkingTokens(counts.reasoning_tokens) if counts.reasoning_tokens else UNSET,
    )


def stop(finish: Finish | None) -> tuple[str, str | None]:
    """The stop reason, and the stop sequence that was found. A stop id is the model's own end."""
    if finish is not None and finish.reason in _REASONS:
        return _REASONS[finish.reason], None
    if finish is not None and isinstance(finish.matched_stop, str):
        return "stop_sequence", finish.matched_stop
    return "end_turn", None
