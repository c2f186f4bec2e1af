"""What the parsers were tried on: the figures of docs/parsers.md, counted while the cases run."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from smg.parsing.format import Format
from smg.parsing.table import REASONING, TOOLS
from tests.parsing.runs import call, parse
from tests.parsing.test_families import GOLDEN
from tests.parsing.test_reasoning_families import CASES
from tests.parsing.test_tool_rows import got
from tests.parsing.tool_rows import ROWS
from tests.parsing.writers import WRITERS
from tests.splits import splits

MAX_LENGTH = 5_000  # characters; longer texts are cut in fewer ways and not counted
PAIRS_BELOW = 400


class Figures(msgspec.Struct):
    """Of one format: its cases, the ways their texts were cut, and how many of those gave another message."""

    row: Format
    cases: int = 0
    splits: int = 0
    differences: int = 0


def tool_cases(name: str) -> Iterator[tuple[list[str], Callable[[Sequence[str]], Any]]]:
    """The chunks of every case of a tool format, and what reads them."""
    for calls in GOLDEN.values():
        yield [WRITERS[name](calls)], lambda chunks: call(name, chunks)
    for one in ROWS:
        if one.family == name and sum(map(len, one.chunks)) <= MAX_LENGTH:
            yield one.chunks, lambda chunks, one=one: got(one, list(chunks))


def reasoning_cases(name: str) -> Iterator[tuple[list[str], Callable[[Sequence[str]], Any]]]:
    """The same of a reasoning format."""
    for family, start, text, *_ in CASES:
        if family == name:
            yield [text], lambda chunks, start=start: parse(name, chunks, start)


def figures(run: bool) -> tuple[list[Figures], list[Figures]]:
    """Count for all reasoning and all tool formats; without ``run`` nothing is parsed and no difference found."""
    return (
        [_figures(row, reasoning_cases(row.name), run) for row in REASONING if row.factory is not None],
        [_figures(row, tool_cases(row.name), run) for row in TOOLS if row.factory is not None],
    )


def _figures(row: Format, cases: Iterator[tuple[list[str], Callable[[Sequence[str]], Any]]], run: bool) -> Figures:
    out = Figures(row)
    for given, read in cases:
        out.cases += 1
        whole = read(["".join(given)]) if run else None
        for chunks in splits(given, pairs_below=PAIRS_BELOW):
            out.splits += 1
            if run and read(chunks) != whole:
                out.differences += 1
    return out
