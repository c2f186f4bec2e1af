"""Answers that do not keep what was asked for are noticed, and why (spec parsers 7)."""

import json

import pytest

from smg.constraints.verify import Rules, Verifier, rules
from smg.core.events import Finish, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

SCHEMA = json.dumps({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
STOP = Finish(0, "stop")


def verdict(events, finish=STOP, text=None, **more):
    verifier = Verifier(Rules(**more))
    verifier.take(events)
    return verifier.broken(finish, text)


def said(*texts):
    return [TextDelta(0, text) for text in texts]


def called(*arguments, complete=True):
    deltas = [ToolCallDelta(0, 0, text) for text in arguments]
    return [ToolCallStart(0, 0, "c", "f"), *deltas, ToolCallEnd(0, 0, complete)]


@pytest.mark.parametrize("text", ['{"x": 1}', ' {"x": 1, "y": null}\n'])
def test_what_fits(text):
    assert verdict(said(text[:3], text[3:]), text=None) == ""
    assert Verifier(Rules(SCHEMA)).broken(STOP, text) == ""


@pytest.mark.parametrize("text", ['{"x": "1"}', '{"x": 1', "", "x", "{" * 100_000])
@pytest.mark.parametrize(
    ("finish", "enforced", "reason"),
    [
        (STOP, True, "engine"),
        (STOP, False, "unconstrained"),
        (Finish(0, "length"), True, "length"),
        (Finish(0, "stop", "}"), True, "stop"),
    ],
)
def test_what_does_not_and_why(text, finish, enforced, reason):
    assert Verifier(Rules(SCHEMA, enforced=enforced)).broken(finish, text) == reason


def test_calls_need_no_answer_beside_them():
    verifier = Verifier(Rules(SCHEMA))
    verifier.take([*said("Let me look."), *called("{}")])
    assert verifier.broken(Finish(0, "tool_calls")) == ""


def test_arguments_of_bound_tools():
    for arguments, reason in (('{"x": 1}', ""), ('{"x": "1"}', "engine"), ('{"x"', "engine")):
        verifier = Verifier(Rules(tools={"f": SCHEMA}))
        verifier.take(called(arguments[:2], arguments[2:]))
        assert verifier.broken(Finish(0, "tool_calls")) == reason
    verifier = Verifier(Rules(tools={"g": SCHEMA}))
    verifier.take(called("{}"))
    assert verifier.broken(STOP) == ""


@pytest.mark.parametrize(
    ("events", "finish", "reason"),
    [
        (called('{"x": 1}'), Finish(0, "tool_calls"), ""),
        (said("I would rather talk."), STOP, "engine"),
        ([], STOP, "engine"),
        (said("Let me"), Finish(0, "length"), "length"),
        ([ToolCallStart(0, 0, "c", "g"), ToolCallEnd(0, 0, True)], Finish(0, "tool_calls"), "engine"),
    ],
)
def test_a_forced_call_has_to_come_and_be_of_a_tool_that_was_asked_for(events, finish, reason):
    verifier = Verifier(Rules(forced=("f", "h")))
    verifier.take(events)
    assert verifier.broken(finish) == reason


def test_a_call_that_broke_off():
    verifier = Verifier(Rules(tools={"f": SCHEMA}))
    verifier.take(called('{"x": 1', complete=False))
    assert verifier.broken(Finish(0, "length")) == "length"


def test_rules_without_a_schema_check_nothing():
    assert not Rules()
    assert rules("regex", "a") == ""
    assert Verifier(Rules(rules("json_object", ""))).broken(STOP, "[1]") == "engine"
    # Look-around can't be matched in linear time, so it is the engine's word that counts.
    assert Verifier(Rules('{"pattern": "(?=a)b"}')).broken(STOP, '"c"') == ""
