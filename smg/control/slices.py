"""Answers about thousands of workers, made a few at a time: in between the event loop does what else there is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

# Workers of one slice; describing one takes some 40 µs.
SLICE = 32

T = TypeVar("T")

# What an operation answers with piece by piece: maps of lists, which whoever asked puts together.
Parts: TypeAlias = AsyncIterator[dict[str, list[Any]]]


async def sliced(items: Sequence[T], make: Callable[[Sequence[T]], dict[str, list[Any]]]) -> Parts:
    """What ``make`` makes of each slice of ``items``; of none at all what it makes of nothing."""
    yield make(())
    for first in range(0, len(items), SLICE):
        yield make(items[first : first + SLICE])
        await asyncio.sleep(0)


async def chained(*parts: Parts) -> Parts:
    """One after the other."""
    for each in parts:
        async for part in each:
            yield part


def as_json(objects: Sequence[dict[str, Any]]) -> list[bytes]:
    """``objects`` as JSON, separated by commas: a piece of a list; none for none."""
    return [msgspec.json.encode(objects)[1:-1]] if objects else []
