"""OpenAI chat completions: ``POST /v1/chat/completions`` (spec api-and-ops 1.5, 1.6; text-pipeline 10, 11)."""

from smg.api.openai_chat.dialect import OpenAIChat

__all__ = ["OpenAIChat"]
