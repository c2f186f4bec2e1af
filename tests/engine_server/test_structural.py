"""Structural tags in the embedded engine: what each part means (spec parsers 7)."""

import json

import pytest

from smg.core.request import Constraint
from smg.engine_server.llama.guidance import ConstraintError
from tests.constraints.oracle import allows

NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
A, B = ({"type": "const_string", "value": value} for value in ("<a>/", 'b"\\\n'))
TAG = {"type": "tag", "begin": "<f>", "content": NUMBER, "end": "</f>"}


def takes(text, format_):
    return allows(Constraint("structural_tag", json.dumps({"type": "structural_tag", "format": format_})), text)


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        (A, ["<a>/"], ["<a>", "", "<a>/ "]),
        (B, ['b"\\\n'], ["b"]),
        (NUMBER, ["12"], ["x", ""]),
        ({"type": "regex", "pattern": "[a-c]{2}/"}, ["ab/"], ["ad/", "ab"]),
        ({"type": "any_text"}, ["", "anything\nat all"], []),
        ({"type": "sequence", "elements": [A, NUMBER]}, ["<a>/7"], ["<a>/", "7"]),
        ({"type": "or", "elements": [A, NUMBER]}, ["<a>/", "7"], ["<a>/7"]),
        ({"type": "sequence", "elements": [{"type": "optional", "content": A}, NUMBER]}, ["7", "<a>/7"], ["<a>/"]),
        ({"type": "plus", "content": A}, ["<a>/", "<a>/<a>/"], [""]),
        ({"type": "star", "content": A}, ["", "<a>/<a>/"], ["<a>"]),
        (TAG, ["<f>3</f>"], ["<f></f>", "<f>3</f", "3"]),
        ({**TAG, "content": {"type": "any_text"}}, ["<f>x < y</f>", "<f></f>"], ["<f>x", "<f>x</f>y"]),
        (
            {"type": "tags_with_separator", "tags": [TAG], "separator": ", ", "at_least_one": True},
            ["<f>1</f>", "<f>1</f>, <f>2</f>"],
            ["", "<f>1</f><f>2</f>"],
        ),
        ({"type": "tags_with_separator", "tags": [TAG], "separator": ","}, ["", "<f>1</f>"], ["x"]),
        (
            {"type": "tags_with_separator", "tags": [TAG], "separator": ",", "stop_after_first": True},
            ["<f>1</f>"],
            ["<f>1</f>,<f>2</f>"],
        ),
        (
            {"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG]},
            ["", "free", "free <f>1</f> and <f>2</f> more"],
            ["free <f>x</f>", "<f"],
        ),
        (
            {"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG], "at_least_one": True},
            ["<f>1</f>", "<f>1</f> and <f>2</f>."],
            ["", "free", "free <f>1</f>"],
        ),
        (
            {"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG], "stop_after_first": True},
            ["free", "free <f>1</f>"],
            ["<f>1</f> more"],
        ),
    ],
)
def test_what_each_part_takes(format_, good, bad):
    for text in good:
        assert takes(text, format_), text
    for text in bad:
        assert not takes(text, format_), text


def test_tags_of_the_first_form():
    old = {"structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f"]}
    constraint = Constraint("structural_tag", json.dumps(old))
    assert allows(constraint, "It is <f>3</f>.")
    assert not allows(constraint, "It is <f>three</f>.")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 3}',
        '{"format": {"type": "magic"}}',
        '{"format": {"type": "tag", "begin": "a"}}',
        '{"format": {"type": "sequence", "elements": 3}}',
        '{"format": {"type": "triggered_tags", "triggers": ["x"], "tags": []}}',
        '{"format": ' + '{"type": "plus", "content": ' * 100 + "3" + "}" * 101,
    ],
)
def test_what_is_no_tag_is_refused(text):
    with pytest.raises(ConstraintError):
        allows(Constraint("structural_tag", text), "")
