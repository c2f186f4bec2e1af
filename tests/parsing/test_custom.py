"""The input of a custom tool is taken out of its arguments however these are cut (rule SPLIT)."""

import json

import pytest

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
