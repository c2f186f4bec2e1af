"""Work over thousands of workers as a generator that stops now and then, to be done at once or in turns of a loop."""

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

# Stops wherever an event loop may do something else; what it returns is the result.
Steps: TypeAlias = Generator[None, None, T]

# Workers to look at between two stops: some hundred microseconds.
WORKERS = 128


def at_once(steps: Steps[T]) -> T:
    """The result, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T]) -> T:
    """The result, with other tasks' turns at each stop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
