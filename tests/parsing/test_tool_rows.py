"""The tool test table, by rule SPLIT."""

import json

import pytest

from smg.core.events import ToolCallStart
from smg.parsing.base import Start
from tests.parsing.runs import STANDARD, call, feed, whole_chain
from tests.parsing.tool_rows import ROWS, Row
from tests.splits import splits


def expected(row: Row) -> tuple[str, list]:
    return "".join(row.chunks) if row.content is None else row.content, row.calls


def got(row: Row, chunks: list[str]) -> tuple[str, list]:
    start = Start(tools=STANDARD if row.tools is None else row.tools)
    message = call(row.family, chunks, start=start)
    assert message.cut == row.cut
    calls = [(name, text if i in row.cut else json.loads(text)) for i, (name, text) in enumerate(message.calls)]
    return message.content, calls


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.family}")
def test_row(row):
    length = sum(map(len, row.chunks))
    for chunks in splits(row.chunks, pairs_below=400, count=20 if length < 5_000 else 2):
        assert got(row, chunks) == expected(row), chunks


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.family}")
def test_row_with_many_splits(row):
    for chunks in splits(row.chunks, count=200):
        assert got(row, chunks) == expected(row), chunks


def test_row_22_nothing_is_sent_before_the_marker_is_whole():
    chain = whole_chain("qwen", Start(tools=STANDARD))
    assert feed(chain, ["<", "t", "ool", "_call", ">"]) == []


def test_row_32_an_unknown_function_does_not_trap_the_next():
    text = "<tool_call><function=nope></function></tool_call><tool_call><function=ping></function></tool_call>"
    for policy, names in (
        (None, ["nope", "ping"]),
        ("drop", ["ping"]),
        ("text", ["ping"]),
        ("forward", ["nope", "ping"]),
    ):
        for chunks in splits([text]):
            message = call("qwen_xml", chunks, start=Start(tools=STANDARD, unknown_tools=policy))
            assert [name for name, _ in message.calls] == names
            assert ("nope" in message.content) == (policy == "text")


def test_row_12_the_name_comes_once_and_is_never_empty():
    chain = whole_chain("json", Start(tools=STANDARD))
    events = feed(chain, list('{"name": "get_weather", "arguments": {"city": "Oslo"}}'))
    assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["get_weather"]
