"""The client dialects of generations. Adding one: a package in ``api/`` and a row here."""

from smg.api.anthropic_messages import AnthropicMessages
from smg.api.dialect import Dialect
from smg.api.generate import Generate
from smg.api.openai_chat import OpenAIChat
from smg.api.openai_completions import OpenAICompletions
from smg.api.openai_responses import OpenAIResponses

DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    AnthropicMessages(),
    Generate(),
)
