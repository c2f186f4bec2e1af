"""The client dialects of generations. Adding one: a package in ``api/`` and a row here."""

from smg.api.anthropic_messages import AnthropicMessages
from smg.api.dialect import Dialect
from smg.api.generate import Generate
from smg.api.openai_chat import OpenAIChat
from smg.api.openai_completions import OpenAICompletions

DIALECTS: tuple[Dialect, ...] = (OpenAIChat(), OpenAICompletions(), AnthropicMessages(), Generate())
