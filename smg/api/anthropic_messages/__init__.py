"""Anthropic's Messages: ``POST /v1/messages`` and its token count (spec agentic-apis 6; text-pipeline 14)."""

from smg.api.anthropic_messages.dialect import AnthropicMessages

__all__ = ["AnthropicMessages"]
