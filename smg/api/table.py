"""The client dialects of generations. Adding one: a package in ``api/`` and a row here."""

from smg.api.dialect import Dialect
from smg.api.openai_chat import OpenAIChat

DIALECTS: tuple[Dialect, ...] = (OpenAIChat(),)
