"""OpenAI Responses: ``POST /v1/responses``, one turn without history (spec agentic-apis 4; text-pipeline 15)."""

from smg.api.openai_responses.dialect import OpenAIResponses

__all__ = ["OpenAIResponses"]
