"""OpenAI completions: ``POST /v1/completions`` (spec api-and-ops 1.5, 1.6; text-pipeline 12)."""

from smg.api.openai_completions.dialect import OpenAICompletions

__all__ = ["OpenAICompletions"]
