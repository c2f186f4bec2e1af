"""Ids of tool calls, as the models they belong to want to read them back (spec parsers 12; cases TP-07, TP-08)."""

from collections.abc import Callable
from typing import TypeAlias

from smg.core import ids

# Makes an id from a call's name and its number in the conversation, earlier turns included.
Mint: TypeAlias = Callable[[str, int], str]

MISTRAL_LENGTH = 9


def default(name: str, number: int) -> str:
    """``call_`` and 24 random hex digits."""
    return ids.tool_call_id()


def kimi(name: str, number: int) -> str:
    """``functions.get_weather:0``: Kimi K2 continues the numbering it finds in the conversation."""
    return f"functions.{name}:{number}"


def kimi_k3(name: str, number: int) -> str:
    """``get_weather:0``."""
    return f"{name}:{number}"


def mistral(name: str, number: int) -> str:
    """Nine alphanumerics: Mistral's templates refuse everything else."""
    return ids.random_id(MISTRAL_LENGTH)
