"""Runs a chain over chunks of text and folds its events."""

from collections.abc import Sequence

from smg.core.events import Event, Finish, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from smg.core.stream import RowOutput
from smg.parsing.base import Parser, Start
from smg.parsing.chain import Chain
from smg.parsing.table import REASONING


def reasoning_parser(name: str, start: Start) -> Parser:
    """A fresh reasoning parser by its name in the table."""
    factory = next(row.factory for row in REASONING if row.name == name)
    assert factory is not None
    return factory(start)


def chain_of(name: str, start: Start | None = None) -> Chain:
    """A chain with the reasoning parser ``name`` and no tool parser."""
    start = start or Start()
    return Chain(0, start, reasoning_parser(name, start))


def feed(chain: Chain, chunks: Sequence[str]) -> list[Event]:
    return [event for chunk in chunks for event in chain.feed(RowOutput(0, chunk, (), None))]


def fold(events: Sequence[Event]) -> tuple[str, str, list[tuple[str, str]], str]:
    """(reasoning, content, [(name, arguments)], finish reason)."""
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    content = "".join(event.text for event in events if isinstance(event, TextDelta))
    names = [event.name for event in events if isinstance(event, ToolCallStart)]
    arguments = ["" for _ in names]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    finish = [event.reason for event in events if isinstance(event, Finish)]
    assert finish[1:] == []
    return reasoning, content, list(zip(names, arguments, strict=True)), "".join(finish)


def parse(name: str, chunks: Sequence[str], start: Start | None = None, reason: str = "stop") -> tuple[str, str]:
    """(reasoning, content) of a whole output."""
    chain = chain_of(name, start)
    return fold(feed(chain, chunks) + chain.finish(reason))[:2]
