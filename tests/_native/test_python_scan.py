"""The scanner of expressions in Python's notation against its model, and against what Python says."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.python_scan import PythonScan
from tests._native.python_model import end_of

UNITS = ["(", ")", "[", "]", "{", "}", "'", '"', "'''", '"""', "\\", "\\'", '\\"', "a", "é", "€", "😀", ",", " ", "\n"]
UNITS += ["''", '""', "x='a)'", 'y="]"', "[1, 2]", "{'k': (1,)}", "\\\\", "#", "(" * 60]
texts = st.lists(st.sampled_from(UNITS) | st.text(max_size=3), max_size=24).map("".join)
starts = st.sampled_from(["(", "[", "{", "(a='", '(a="', "(a='''", "([{"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4) | st.tuples(inner)
    ),
    max_leaves=12,
)


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def run(chunks):
    """Where the scanner stops, and how, when text comes as it comes to a parser."""
    scan, taken = PythonScan(), 0
    for chunk in chunks:
        taken += scan.run(chunk)
        if scan.over or scan.stuck:
            break
    return taken, scan.over, scan.stuck


def kept(chunks):
    """The same when a row follows the text and the parser gets it in one piece."""
    scan, text = PythonScan(), ""
    for chunk in chunks:
        text += chunk
        scan.follow(chunk)
        if scan.over or scan.stuck:
            break
    return scan.run(text), scan.over, scan.stuck


@settings(max_examples=500)
@given(starts, texts, st.lists(st.integers(0, 500), max_size=6))
def test_the_scanner_is_its_model(start, text, places):
    whole = start + text
    expected = end_of(whole)
    assert run([whole]) == run(list(whole)) == run(cut(whole, places)) == expected
    # A string of two quotes is an empty one only once something else has come.
    assert kept([whole]) == kept(list(whole)) == kept(cut(whole, places)) == expected


@settings(max_examples=200)
@given(values, texts)
def test_what_python_writes_ends_where_it_ends(value, behind):
    text = repr([value])
    assert run([text + behind]) == (len(text), True, False)
    assert run([json.dumps([value]) + behind]) == (len(json.dumps([value])), True, False)


@given(starts, texts, st.integers(0, 30))
def test_a_place_to_begin_at_is_as_good_as_a_cut(start, text, at):
    whole = start + text
    at = min(at, len(whole))
    scan, other = PythonScan(), PythonScan()
    assert scan.run(whole, at) == at + other.run(whole[at:])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("(a=')')x", "x"),
        ("(a='it''s')x", "x"),
        ("(a='\\')')x", "x"),
        ("(a='''it's ')' and ''''')x", "x"),
        ('(a="""two "" quotes)""")x', "x"),
        ("(a='', b=\"\")x", "x"),
        ("({'a': [(1), {2}]})x", "x"),
    ],
)
def test_brackets_inside_strings_do_not_count(text, rest):
    assert run([text]) == (len(text) - len(rest), True, False)


@pytest.mark.parametrize("text", ["(]", "([)", "({])", "(a=''])"])
def test_it_stops_in_front_of_a_bracket_that_has_no_place(text):
    end, over, stuck = run([text])
    assert (over, stuck) == (False, True)
    assert text[end] in ")]"


def test_brackets_are_followed_to_a_depth():
    assert run(["[" * 128 + "]" * 128]) == (256, True, False)
    assert run(["[" * 129]) == (128, False, True)


def test_a_place_outside_the_text_is_refused():
    for at in (-1, 3):
        with pytest.raises(IndexError):
            PythonScan().run("()", at)


@pytest.mark.parametrize("unit", ["[", "'", '"', "'''", "\\", "(')'", "é"])
def test_a_megabyte_of_anything_is_read_once(unit):
    text = "(" + unit * ((1 << 20) // len(unit))
    assert run([text])[0] <= len(text)
