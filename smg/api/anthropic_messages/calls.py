"""Tool calls as blocks: their ids and their input (spec agentic-apis 6.2, 6.4)."""

from typing import Any

import msgspec

from smg.core.ids import random_id

# Under this name a client gets what is no JSON object: cut off, or not what it should be.
INVALID = "INVALID_JSON"


def call_id() -> str:
    """A new id of a call; how the model's own format names calls is between it and the gateway."""
    return "toolu_" + random_id()


def call_input(arguments: str) -> dict[str, Any]:
    """The arguments as the object that a whole answer has. Nothing that was written is dropped."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID: arguments}
