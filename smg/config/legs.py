"""Engines of a disaggregated fleet as flags name them: ``URL [PORT]``, repeatedly (spec api-and-ops 3.1)."""

from collections.abc import Sequence
from typing import NamedTuple


class Named(NamedTuple):
    """One engine of ``--prefill``, ``--decode`` or ``--encode``; ``port`` is None where none was given."""

    url: str
    port: int | None


def parse(values: Sequence[str]) -> list[Named]:
    """Read addresses, each of which a bootstrap port or the word ``none`` may follow.

    An item of a file or of the environment may hold both, separated by a space.

    Raises:
        ValueError: a port without an address before it, or what is neither.
    """
    found: list[Named] = []
    for word in (word for value in values for word in value.split()):
        if "://" in word:
            found.append(Named(word, None))
            continue
        if not found or found[-1].port is not None:
            raise ValueError(f"{word!r} is not an engine address such as grpc://127.0.0.1:50051")
        if word.casefold() == "none":
            continue
        if not word.isdecimal() or not 1 <= int(word) <= 65535:
            raise ValueError(f"{word!r} is neither an engine address nor a port from 1 to 65535")
        found[-1] = found[-1]._replace(port=int(word))
    return found
