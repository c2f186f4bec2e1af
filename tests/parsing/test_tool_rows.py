"""The tool test table, by rule SPLIT."""

import json

import pytest

from smg.config.settings import ModelSettings
from smg.core.events import ToolCallStart
from smg.parsing.base import Start
from smg.parsing.choose import choose
from tests.parsing.runs import STANDARD, call, feed, whole_chain
from tests.parsing.tool_rows import ROWS, Row
from tests.parsing.writers import WRITERS
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


def test_row_33_every_marker_of_qwen_xml_cut_at_every_character():
    text = WRITERS["qwen_xml"]([("run", {"cmd": "a < b"}), ("ping", {})])
    whole = call("qwen_xml", [text])
    assert whole.read() == [("run", {"cmd": "a < b"}), ("ping", {})]
    assert all(call("qwen_xml", [text[:at], text[at:]]) == whole for at in range(len(text)))
    assert call("qwen_xml", list(text)) == whole


@pytest.mark.parametrize("model", ["glm-5", "zai-org/GLM-5", "glm-5.2-fp8"])
def test_row_52_later_models_of_GLM(model):
    assert choose(ModelSettings(), model).tools.name == "glm47_moe"


@pytest.mark.parametrize("text", ['<tool_call>{"name": "', '<tool_call>{"name": "get', '<tool_call>{"name": "ping"'])
def test_row_65_a_name_that_is_cut_announces_no_call_and_is_not_lost(text):
    for chunks in splits([text]):
        message = call("qwen", chunks, reason="length")
        assert (message.calls, message.content) == ((), text)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("日本<｜tool▁ca", "<｜tool▁ca"),
        ("é😀<｜", "<｜"),
        ("<｜tool▁<｜tool▁calls▁begin", "<｜tool▁calls▁begin"),
        ("｜", ""),
    ],
)
def test_row_66_the_longest_tail_that_may_become_a_marker_is_held_and_no_more(text, held):
    chain = whole_chain("deepseek", Start(tools=STANDARD))
    assert "".join(event.text for event in feed(chain, [text])) == text.removesuffix(held)
    assert "".join(event.text for event in chain.finish("stop")[:-1]) == held
