"""The JSON scanner against its model in plain Python, and against what JSON is."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.json_scan import JsonScan
from tests._native.json_model import JsonModel

UNITS = ["{", "}", "[", "]", ":", ",", '"', " ", "\n", "\\", "\\n", "\\u", "00e9", "\\ud83d", "\\u0041", "\\q", "u"]
UNITS += ["0", "1", "-", ".", "e", "+", "true", "false", "null", "True", "nul", "a", "é", "€", "😀", "\x01", "\t", "'"]
UNITS += ['"a":', '{"b": [', "1, 2", "]}", '"x"', '", "y": ', "[[", "{}", "[]", ",}", " " * 300, "7" * 300]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
texts = st.lists(st.sampled_from(UNITS) | st.text(max_size=3), max_size=20).map("".join)
# Most random texts end at once: begin some inside of something.
starts = st.sampled_from(["", "{", '{"a": ', '{"a": "', "[", '[{"k": [1, ', '["'])


def fed(scan, chunks):
    """Feed chunks as rows do: what was not taken comes again with the next one. Stops where the scanner is stuck."""
    rest, ends, taken = "", [], 0
    for chunk in chunks:
        rest += chunk
        end = scan.run(rest)
        taken, rest = taken + end, rest[end:]
        ends.append((taken, scan.stuck))
        if scan.stuck:
            break
    return ends, taken, scan.depth, scan.in_string


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@settings(max_examples=400)
@given(starts, texts, st.lists(st.integers(0, 500), max_size=5))
def test_the_scanner_is_its_model(start, text, places):
    chunks = cut(start + text, places)
    assert fed(JsonScan(), chunks) == fed(JsonModel(), chunks)


@given(starts, texts, st.integers(0, 20))
def test_a_place_to_begin_at_is_as_good_as_a_cut(start, text, at):
    whole = start + text
    at = min(at, len(whole))
    assert JsonScan().run(whole, at) == at + JsonScan().run(whole[at:])


@settings(max_examples=300)
@given(starts, texts, st.lists(st.integers(0, 500), max_size=8))
def test_no_cut_changes_what_is_taken(start, text, places):
    # Of units too long to wait for a cut may show nothing but the beginning.
    whole = (start + text).replace(" " * 300, " ").replace("7" * 300, "7")
    (_, taken, *state), (_, once, *other) = fed(JsonScan(), cut(whole, places)), fed(JsonScan(), [whole])
    assert (taken, state) == (once, other)


@settings(max_examples=200)
@given(starts, texts, st.lists(st.integers(0, 500), max_size=8), st.integers(0, 60))
def test_rows_take_the_same_within_what_was_lent(start, text, places, room):
    scan, model = JsonScan(), JsonModel()
    scan.lend(room)
    rest, taken = "", 0
    for chunk in cut(start + text, places):
        rest += chunk
        if len(rest.encode()) > room:
            assert scan.follow(rest) == 0
            assert scan.stuck
            break
        end = scan.follow(rest)
        assert (end, scan.stuck) == (model.run(rest), model.stuck)
        taken, room, rest = taken + end, room - len(rest[:end].encode()), rest[end:]
        if scan.stuck:
            break
    assert (scan.followed(), scan.followed()) == (taken, 0)


@settings(max_examples=200)
@given(st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=4), values, max_size=4), st.booleans())
def test_valid_json_is_taken_up_to_its_last_bracket(value, compact):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)
    assert JsonScan().run(text + " tail") == len(text) - 1


@given(starts, texts)
def test_what_was_taken_is_the_beginning_of_valid_json(start, text):
    model = JsonModel()
    taken = (start + text)[: model.run(start + text)]
    if not model.depth:
        assert not taken.strip()
        return
    # Complete it in the plainest way.
    end = '"' if model.in_string else ""
    match model.due:
        case "colon":
            end += ": 0"
        case "value":
            end += " 0"
        case "again":
            end += '"z": 0' if model.open[-1] == "{" else "0"
    json.loads(taken + end + "".join("}" if bracket == "{" else "]" for bracket in reversed(model.open)))


@given(st.binary(max_size=60))
def test_random_bytes_are_harmless(data):
    scan = JsonScan()
    scan.lend(1000)
    text = data.decode("utf-8", "replace")
    assert 0 <= scan.follow(text) <= len(text)


def test_the_end_is_for_the_caller():
    scan = JsonScan()
    assert (scan.run("[1]"), scan.over) == (2, False)
    assert scan.take("]")
    assert scan.over


@pytest.mark.parametrize("char", ["}", ":", ","])
def test_what_has_no_place_is_refused(char):
    scan = JsonScan()
    scan.run("[")
    assert not scan.take(char)
    assert scan.take("]")


def test_a_scalar_that_the_caller_has_read():
    scan = JsonScan()
    scan.run('{"a": ')
    assert scan.scalar(quoted=False)
    assert not scan.scalar(quoted=False)
    assert scan.run(', "b": 1}') == len(', "b": 1')


def test_a_string_outside_of_brackets_ends_where_the_caller_says():
    scan = JsonScan()
    assert scan.scalar(quoted=True)
    assert (scan.run('text"'), scan.stuck) == (4, True)
    scan.close_string()
    assert scan.over


def test_depth_is_limited():
    scan = JsonScan()
    assert scan.run("[" * 200) == 128
    assert not scan.take("[")


@pytest.mark.parametrize("at", [-1, 3])
def test_a_place_outside_the_text(at):
    with pytest.raises(IndexError):
        JsonScan().run("[1", at)
