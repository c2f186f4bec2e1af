"""Runs parsers over chunks of text and folds what comes out.

``call`` and ``parse`` run each output twice: all of it through the chain, and in a row of the table, where text that
the parsers can wait with goes past them. Both must tell the same. Not for cuts in two: there are more of them than of
all others, and between two chunks is only one place where text might go past.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from smg.core.events import Event, Finish, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from smg.core.request import Tool
from smg.core.stream import ByteTemplate, Counter, RowOutput, RowSpec, Wait
from smg.parsing.base import Parser, Start
from smg.parsing.chain import Chain
from smg.parsing.format import Format
from smg.parsing.table import REASONING, TOOLS
from smg.text.tables import make_table


def _properties(**types: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}


# The tools of the field cases.
STANDARD = (
    Tool("get_weather", parameters=_properties(city="string", days="integer")),
    Tool("search", parameters=_properties(query="string", limit="number", filters="object", tags="array")),
    Tool("run", parameters=_properties(cmd="string")),
    Tool("write_file", parameters=_properties(path="string", text="string")),
    Tool("ping", parameters=_properties()),
)


class Message(msgspec.Struct, frozen=True):
    """A whole answer. ``calls`` are (name, arguments as they came); ``cut`` are the places of incomplete calls."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    cut: tuple[int, ...] = ()

    def read(self) -> list[tuple[str, Any]]:
        """The calls with their arguments as objects; they must be valid JSON."""
        return [(name, json.loads(arguments)) for name, arguments in self.calls]


def row(rows: Sequence[Format], name: str) -> Format:
    """A row of the table by its name or one of its aliases."""
    return next(row for row in rows if name == row.name or name in row.aliases)


def reasoning_parser(name: str, start: Start) -> Parser:
    """A fresh reasoning parser by its name in the table."""
    factory = row(REASONING, name).factory
    assert factory is not None
    return factory(start)


def chain_of(name: str, start: Start | None = None) -> Chain:
    """A chain with the reasoning parser ``name`` and no tool parser."""
    start = start or Start()
    return Chain(0, start, reasoning_parser(name, start))


def whole_chain(tools: str, start: Start, reasoning: str | None = None) -> Chain:
    """A chain with a tool parser, and a reasoning parser if one is named."""
    format_ = row(TOOLS, tools)
    return Chain(
        0,
        start,
        reasoning_parser(reasoning, start) if reasoning else None,
        format_.factory(start) if format_.factory else None,
        mint=format_.mint,
    )


def feed(chain: Chain, chunks: Sequence[str]) -> list[Event]:
    return [event for chunk in chunks for event in chain.feed(RowOutput(0, chunk, (), None))]


class Texts:
    """A decoder of which each chunk is a token."""

    def __init__(self, chunks: Sequence[str]) -> None:
        self._bytes = [chunk.encode() for chunk in chunks]
        self.size = len(chunks)

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    first_bytes = token_bytes

    def is_special(self, token: int) -> bool:
        return False


class Past:
    """A row with ``chain``, whose text goes past it where it can: sink and tap of the row, and all events in order.

    ``passed`` counts the characters that no parser has seen, by kind.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._wait: Wait | None = None
        self.events: list[Event] = []
        self.passed = {"text": 0, "reasoning": 0, "arguments": 0}

    def write(self, data: bytes) -> bool:
        assert self._wait is not None
        text = "".join(json.loads(b"[" + data[:-1] + b"]"))
        self.passed[self._wait.kind] += len(text)
        match self._wait.kind:
            case "text":
                self.events.append(TextDelta(0, text))
            case "reasoning":
                self.events.append(ReasoningDelta(0, text))
            case "arguments":
                self.events.append(ToolCallDelta(0, self._wait.call, text))
        return True

    async def drain(self) -> None: ...

    def on_output(self, row: int, output: RowOutput) -> None:
        self._wait = None
        self.events += self._chain.feed(output)

    def run(self, chunks: Sequence[str], reason: str = "stop", feeds: int = 1) -> list[Event]:
        """Feed ``chunks``, ``feeds`` at a time, and finish."""
        table = make_table()
        row = table.open(RowSpec(), Texts(chunks), self)
        for start in range(0, len(chunks), feeds):
            if self._wait is None:
                self._wait = self._chain.wait()
                if self._wait is not None:
                    table.direct(row, self, ByteTemplate((b'"', b'",'), ("text",)), Counter(), self._wait)
            table.feed(row, range(start, min(start + feeds, len(chunks))))
        table.finish(row)
        table.close(row)
        return self.events + self._chain.finish(reason)


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


def in_order(events: Sequence[Event]) -> None:
    """What every stream keeps: indexes without gaps, names whole and first, one end for each call, and then no more."""
    opened = -1
    ended = True
    for event in events:
        match event:
            case ToolCallStart(index=index, name=name, id=call):
                assert ended
                assert (index, bool(name), bool(call)) == (opened + 1, True, True)
                opened, ended = index, False
            case ToolCallDelta(index=index):
                assert (index, ended) == (opened, False)
            case ToolCallEnd(index=index):
                assert (index, ended) == (opened, False)
                ended = True
            case TextDelta() | ReasoningDelta():
                assert ended
    assert ended
    ids = [event.id for event in events if isinstance(event, ToolCallStart)]
    assert len(set(ids)) == len(ids)


def answer(chain: Chain, chunks: Sequence[str], reason: str = "stop") -> Message:
    """Feed ``chunks``, finish, check the order and fold."""
    return message(feed(chain, chunks) + chain.finish(reason))


def message(events: Sequence[Event]) -> Message:
    """Check the order of ``events`` and fold them."""
    in_order(events)
    reasoning, content, calls, finish = fold(events)
    cut = tuple(event.index for event in events if isinstance(event, ToolCallEnd) and not event.complete)
    return Message(reasoning, content, tuple(calls), finish, cut)


def call(
    tools: str,
    chunks: Sequence[str],
    *,
    start: Start | None = None,
    reasoning: str | None = None,
    reason: str = "stop",
) -> Message:
    """The answer of the tool format ``tools`` (and a reasoning format) to ``chunks``."""
    start = start or Start(tools=STANDARD)
    whole = answer(whole_chain(tools, start, reasoning), chunks, reason)
    if len(chunks) != 2:
        assert message(Past(whole_chain(tools, start, reasoning)).run(chunks, reason)) == whole
    return whole


def parse(name: str, chunks: Sequence[str], start: Start | None = None, reason: str = "stop") -> tuple[str, str]:
    """(reasoning, content) of a whole output."""
    chain = chain_of(name, start)
    whole = fold(feed(chain, chunks) + chain.finish(reason))[:2]
    if len(chunks) != 2:
        assert fold(Past(chain_of(name, start)).run(chunks, reason))[:2] == whole
    return whole
