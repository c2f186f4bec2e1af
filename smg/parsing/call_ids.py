"""Ids of tool calls, as the models they belong to want to read them back (spec parsers 12; cases TP-07, TP-08)."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from smg.core import ids
from smg.core.request import Message

# Makes an id from a call's name and its number in the conversation, earlier turns included.
Mint: TypeAlias = Callable[[str, int], str]
# The id that the model can read for a call of an earlier turn: from the id a client sent, the name and the number.
Recall: TypeAlias = Callable[[str, str, int], str]

MISTRAL_LENGTH = 9

_NUMBER_AT_END = re.compile(r"(\d+)$")


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


def recall_kimi(given: str, name: str, number: int) -> str:
    """``given`` if it has Kimi K2's form. Otherwise the form is made anew, with the number that ``given`` ends with
    when only dot and colon got lost."""
    if re.fullmatch(rf"functions\.{re.escape(name)}:\d+", given):
        return given
    found = _NUMBER_AT_END.search(given)
    lost = found is not None and re.sub(r"[^A-Za-z0-9]", "", given[: found.start()]) == "functions" + re.sub(
        r"[^A-Za-z0-9]", "", name
    )
    return kimi(name, int(found[1]) if found is not None and lost else number)


def recall_mistral(given: str, name: str, number: int) -> str:
    """``given`` if it has Mistral's form, else nine characters that are always the same for it."""
    if re.fullmatch(rf"[A-Za-z0-9]{{{MISTRAL_LENGTH}}}", given):
        return given
    return hashlib.blake2b(f"{given}:{number}".encode()).hexdigest()[:MISTRAL_LENGTH]


def recalled(messages: Sequence[Message], recall: Recall) -> list[Message]:
    """``messages`` with calls, and their results, under ids that ``recall`` makes (case TP-07)."""
    out: list[Message] = []
    renamed: dict[str, str] = {}
    number = 0
    for message in messages:
        if message.tool_calls:
            calls = []
            for call in message.tool_calls:
                own = recall(call.id, call.name, number)
                renamed[call.id] = own
                calls.append(replace(call, id=own))
                number += 1
            message = replace(message, tool_calls=calls)
        elif message.tool_call_id in renamed:
            message = replace(message, tool_call_id=renamed[message.tool_call_id])
        out.append(message)
    return out
