"""The input of a custom tool is taken out of its arguments however these are cut (rule SPLIT)."""

import json

import pytest

from smg.core.stream import Wait
from smg.parsing.custom import Input
from tests.splits import splits

TEXT = 'a "quoted" \\ back\n\ttab é 東 🙂 {"x": [1]}'


def unwrapped(arguments):
    found = set()
    for chunks in splits([arguments]):
        reader = Input()
        found.add("".join(map(reader.feed, chunks)) + reader.finish())
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_text_of_the_only_argument(ascii_only):
    assert unwrapped(json.dumps({"input": TEXT}, ensure_ascii=ascii_only)) == TEXT


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{ "input" : "a" }', "a"),
        ('{"input": "a", "more": 1}', "a"),
        ('{"input": "a b', "a b"),
        ('{"input": "a\\u00', "a"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"input": {"a": 1}}', '{"input": {"a": 1}}'),
        ('{"cmd": "ls"}', '{"cmd": "ls"}'),
        ('{"inp', '{"inp'),
        ("{}", "{}"),
        ("", ""),
    ],
)
def test_other_forms_and_cut_ones(arguments, text):
    assert unwrapped(arguments) == text


def test_it_is_passed_on_while_it_arrives():
    reader = Input()
    assert [reader.feed(part) for part in ('{"inp', 'ut": "a', "b\\", 'n"', "}")] == ["", "a", "b", "\n", ""]


def past(arguments, step):
    """The input where all goes past it that it lets past, and what does not comes ``step`` characters at a time."""
    reader, out, at, passed = Input(), "", 0, 0
    while at < len(arguments):
        wait = reader.wait(Wait("arguments", ("|",)))
        if wait is not None:
            ends = [arguments.find(marker, at) for marker in wait.markers]
            end = min((end for end in ends if end >= 0), default=len(arguments))
            out, passed, at = out + arguments[at:end], passed + end - at, end
        out += reader.feed(arguments[at : at + step])
        at += step
    return out + reader.finish(), passed


@pytest.mark.parametrize("step", [1, 2, 7])
@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"input": TEXT}),
        json.dumps({"input": TEXT}, ensure_ascii=False),
        '{"input": "a\n\x01 raw \\ud83d and \\ud83d\\ude00 \\q \\\\ | end", "more": "x"} ',
        '{"cmd": "ls\\n | x"}',
        '{"input": "broken off, \\u00',
    ],
)
def test_what_goes_past_it_is_what_it_would_have_said(arguments, step):
    out, passed = past(arguments, step)
    assert out == unwrapped(arguments)
    assert passed > 0


def test_what_an_xml_format_has_in_the_string_is_the_input_as_it_stands():
    reader, wait = Input(), Wait("arguments", ("</",), quoted=True)
    assert reader.wait(wait) is None
    reader.feed('{"input": "')
    assert reader.wait(wait) == Wait("arguments", ("</",))
    reader.feed("\\")
    assert reader.wait(wait) is None, "an escape has begun"
    reader.feed('n"}')
    assert reader.wait(wait) is None, "the string is over"
