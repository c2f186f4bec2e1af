"""Rows that a parser reads: direct up to what it waits for, tapped from there on (``core.stream.Wait``)."""

import json
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.json_scan import JsonScan
from smg._native.python_scan import PythonScan
from smg._native.stream_table import StreamTable
from smg.core.stream import ByteTemplate, Counter, RowOutput, RowSpec, Wait
from smg.text.stream_table import PythonStreamTable
from tests._native.test_stream_table import Recorder, Vocabulary, heard, tokens

TEMPLATE = ByteTemplate((b"<", b":", b">"), ("sequence", "text"))
PLAIN = ByteTemplate((b"", b""), ("text",))

MARKS = ["<t>", "</t>", "<", "ab", "abc", "bc", "ca", "é<", "😀", "[", '"a"', "ccc"]
FRAGMENTS = [b"a", b"b", b"ab", b"c", b"<", b"t>", b"</", b"<t>", b"", "é".encode(), b"\xf0\x9f", b"\x98\x80", b"\xff"]
FRAGMENTS += [
    b"(",
    b"(",
    b")",
    b"'",
    b"{",
    b"}",
    b'"',
    b'"a": ',
    b"[1, ",
    b"2",
    b"]",
    b", ",
    b"\\",
    b"u00e9",
    b"true",
    b"\n",
    b"\\n",
    b"{}",
]


@st.composite
def parsed(draw):
    """A vocabulary, how the row stops, what is waited for, feeds, and at which feeds the row goes direct (again)."""
    inner = draw(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=14))
    stops = draw(st.lists(st.sampled_from(["ab", "<t", "c", "\n\n", '"}']), max_size=2))
    spec = RowSpec(stop_strings=tuple(stops), stop_visible=draw(st.booleans()))
    marks = tuple(draw(st.lists(st.sampled_from(MARKS), max_size=4)))
    feeds = draw(st.lists(st.lists(st.integers(0, len(inner) - 1), max_size=8), max_size=8))
    how = draw(st.sampled_from(["", "json", "quoted", "held", "python"]))
    return Vocabulary(inner), spec, marks, how, feeds, draw(st.sets(st.integers(0, 7)))


def wait_for(marks, how, scan, python):
    """Whatever a parser may wait for."""
    kind = "held" if how in ("held", "python") else "text"
    return Wait(kind, marks, scan if how == "json" else None, python if how == "python" else None, how == "quoted")


def run(table, vocabulary, spec, marks, how, feeds, turns):
    """What was heard and written, in which order, and what the row has kept."""
    seen, counter, scan, python = Recorder(), Counter(3), JsonScan(), PythonScan()
    scan.lend(40)
    row = table.open(spec, vocabulary, seen)
    for number, ids in enumerate(feeds):
        if number in turns:
            table.direct(row, seen, TEMPLATE, counter, wait_for(marks, how, scan, python))
        table.feed(row, ids)
    table.finish(row)
    result = heard(seen), b"".join(seen.writes), seen.order, counter.value, table.ids(row), table.text(row)
    table.close(row)
    return *result, scan.followed(), scan.depth, python.run(" " * 100), python.over


@settings(max_examples=300)
@given(parsed())
def test_rows_equal_the_twin_fed_token_by_token(case):
    *start, feeds, turns = case
    singles, where = [], set()
    for number, ids in enumerate(feeds):
        if number in turns and ids:
            where.add(len(singles))
        singles += [[token] for token in ids]
    native, twin = (run(table, *start, singles, where) for table in (StreamTable(RowOutput), PythonStreamTable()))
    assert native == twin


@settings(max_examples=200)
@given(parsed(), st.lists(st.integers(0, 60), max_size=6))
def test_however_tokens_come_together_as_much_goes_direct(case, cuts):
    *start, feeds, _ = case
    ids = list(chain(*feeds))
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    outcomes = []
    for pieces in (
        [ids],
        [ids[start:end] for start, end in pairwise(edges) if start < end],
        [[token] for token in ids],
    ):
        told, written, _, _, *kept = run(StreamTable(RowOutput), *start, pieces, {0})
        outcomes.append(("".join(output[1] for output in told), written, *kept))
    assert all(outcome == outcomes[0] for outcome in outcomes)


@settings(max_examples=200)
@given(parsed())
def test_no_text_is_lost_and_none_of_a_marker_goes_direct(case):
    vocabulary, spec, marks, how, feeds, _ = case
    seen, table = Recorder(), StreamTable(RowOutput)
    scan = JsonScan()
    scan.lend(1 << 20)
    row = table.open(spec, vocabulary, seen)
    table.direct(row, seen, TEMPLATE, Counter(), wait_for(marks, how, scan, PythonScan()))
    for ids in feeds:
        table.feed(row, ids)
    table.finish(row)
    whole = table.text(row)
    assert whole.endswith(seen.text)
    direct = whole[: len(whole) - len(seen.text)]
    assert not any(mark in direct for mark in marks)
    assert how not in ("held", "python") or direct == ""
    if marks and how in ("", "quoted") and seen.text:
        # What the parser is given begins like something that it waits for.
        assert any(seen.text.startswith(mark) or mark.startswith(seen.text) for mark in marks) or any(
            mark in seen.text for mark in marks
        )


def table_with(wait: Wait, *chunks: str | bytes, spec: RowSpec | None = None):
    seen, table = Recorder(), StreamTable(RowOutput)
    row = table.open(spec or RowSpec(), tokens(*chunks), seen)
    table.direct(row, seen, PLAIN, Counter(), wait)
    return table, row, seen


def test_text_before_a_marker_goes_to_the_sink_and_the_rest_to_the_tap():
    table, row, seen = table_with(Wait("text", ("<call>",)), "one ", "two <", "call", "> three", " four")
    table.feed(row, [0, 1])
    assert (seen.writes, seen.outputs) == ([b"one two "], [])
    table.feed(row, [2])
    assert (seen.writes, seen.outputs) == ([b"one two "], []), "held: it may become the marker"
    table.feed(row, [3, 4])
    assert [(o.text, o.ids, o.stopped) for o in seen.outputs] == [("<call> three four", [3, 4], False)]
    table.feed(row, [4])
    assert seen.text == "<call> three four four", "tapped until it is told to go direct again"


def test_what_began_like_a_marker_and_was_none_goes_direct_after_all():
    table, row, seen = table_with(Wait("text", ("<call>",)), "a <", "call", "ed")
    for token in range(3):
        table.feed(row, [token])
    assert (seen.writes, seen.outputs) == ([b"a ", b"<called"], [])


def test_at_the_end_the_tap_gets_what_is_held():
    table, row, seen = table_with(Wait("text", ("<call>",)), "a <ca")
    table.feed(row, [0])
    table.finish(row)
    assert (seen.writes, [o.text for o in seen.outputs]) == ([b"a "], ["<ca"])
    assert table.text(row) == "a <ca"


def test_a_stop_string_ends_a_parsed_row_as_any_other():
    table, row, seen = table_with(Wait("text", ("<call>",)), "a <ca", "STOP", spec=RowSpec(stop_strings=("STOP",)))
    table.feed(row, [0, 1])
    assert [(o.text, o.stopped, o.matched) for o in seen.outputs] == [("<ca", True, "STOP")]
    assert (seen.writes, seen.order) == ([b"a "], ["sink", "tap"])


def test_without_anything_to_wait_for_only_the_end_is_told():
    table, row, seen = table_with(Wait("text"), "a", "<")
    table.feed(row, [0, 1, 1])
    assert (seen.writes, seen.outputs) == ([b"a<<"], [])


def test_arguments_go_direct_up_to_the_bracket_that_ends_them():
    scan = JsonScan()
    scan.lend(1000)
    table, row, seen = table_with(Wait("arguments", json=scan), '{"city": "Os', 'lo }", "days', '": 1', "2}", "</call>")
    table.feed(row, [0, 1, 2])
    assert seen.writes == [b'{\\"city\\": \\"Oslo }\\", \\"days\\": '], "a number has to end first"
    table.feed(row, [3, 4])
    assert seen.writes[1:] == [b"12"]
    assert seen.text == "}</call>"
    assert (scan.depth, scan.followed()) == (1, len('{"city": "Oslo }", "days": 12'))


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": 1, }', ", }"),
        ('{"a": True}', "True}"),
        ('{"a": "x\ny"}', '\ny"}'),
        ('{"a": "\\q"}', '\\q"}'),
        ('{"a": "\\ud83d\\ude00"}', '\\ud83d\\ude00"}'),
        ('{"a" 1}', "1}"),
        ('{"a": 01}', "01}"),
        ('{"a": [1}', "}"),
        ("[" * 130, "[["),
    ],
)
def test_what_is_no_plain_json_is_left_to_the_parser(text, rest):
    scan = JsonScan()
    scan.lend(1000)
    table, row, seen = table_with(Wait("arguments", json=scan), text)
    table.feed(row, [0])
    assert seen.text == rest


def test_what_a_string_says_goes_on_as_it_stands_between_quotes():
    table, row, seen = table_with(Wait("arguments", ("</p>",), quoted=True), 'say "hi"', "\n<", "/p>")
    table.feed(row, [0, 1])
    assert json.loads(b'"' + seen.writes[0] + b'"') == 'say \\"hi\\"\\n'
    table.feed(row, [2])
    assert seen.text == "</p>"
    assert table.text(row) == 'say "hi"\n</p>'


def test_a_marker_inside_arguments_ends_them_all_the_same():
    scan = JsonScan()
    scan.lend(1000)
    table, row, seen = table_with(Wait("arguments", ("<think>",), scan), '{"a": "b <thi', 'nk> c"}')
    table.feed(row, [0])
    assert seen.writes == [b'{\\"a\\": \\"b ']
    table.feed(row, [1])
    assert seen.text == '<think> c"}'


def test_arguments_beyond_what_was_lent_are_for_the_parser():
    scan = JsonScan()
    scan.lend(10)
    table, row, seen = table_with(Wait("arguments", json=scan), '{"a": "', "more")
    table.feed(row, [0])
    table.feed(row, [1])
    assert (seen.writes, seen.text) == ([b'{\\"a\\": \\"'], "more")


def test_held_text_comes_in_one_piece_when_a_marker_has_come():
    table, row, seen = table_with(Wait("held", ("</p>",)), "[1", ", 2", "]</", "p>")
    for token in range(3):
        table.feed(row, [token])
    assert (seen.writes, seen.outputs) == ([], [])
    table.feed(row, [3])
    assert ([o.text for o in seen.outputs], [o.ids for o in seen.outputs]) == (["[1, 2]</p>"], [[3]])
    assert table.ids(row) == [0, 1, 2, 3]


@pytest.mark.parametrize("end", [")", "]"])
def test_held_text_comes_when_the_expression_ends_or_has_a_wrong_bracket(end):
    table, row, seen = table_with(Wait("held", python=PythonScan()), "(a=')", "'", end, "x")
    table.feed(row, [0, 1])
    assert seen.outputs == []
    table.feed(row, [2])
    table.feed(row, [3])
    assert [o.text for o in seen.outputs] == ["(a=')'" + end, "x"]


def test_an_expression_is_followed_no_further_than_a_marker_may_begin():
    scan = PythonScan()
    table, row, seen = table_with(Wait("held", ("<think>",), python=scan), "(a='<th", "ink>)")
    table.feed(row, [0])
    table.feed(row, [1])
    assert seen.text == "(a='<think>)"
    assert scan.run("(a='<") == 5, "four of them are known"


@pytest.mark.parametrize("make", [lambda: StreamTable(RowOutput), PythonStreamTable])
def test_the_parser_sees_at_times_what_is_held(make):
    table, seen = make(), Recorder()
    row = table.open(RowSpec(), tokens("é" * 1000), seen)
    table.direct(row, seen, PLAIN, Counter(), Wait("held", ("|",)))
    for _ in range(40):
        table.feed(row, [0])
    assert [len(o.text) for o in seen.outputs[:2]] == [33_000, 1000], "64 KiB, and then as it comes"


def test_held_text_comes_at_the_end_of_the_row():
    table, row, seen = table_with(Wait("held", ("|",)), "a", "b")
    table.feed(row, [0, 1])
    table.finish(row)
    assert (seen.writes, [o.text for o in seen.outputs], table.text(row)) == ([], ["ab"], "ab")


def test_a_row_may_go_direct_again_and_again():
    table, row, seen = table_with(Wait("text", ("|",)), "a", "|")
    for _ in range(3):
        table.feed(row, [0, 1])
        table.direct(row, seen, PLAIN, Counter(), Wait("text", ("|",)))
    assert (seen.writes, [o.text for o in seen.outputs]) == ([b"a"] * 3, ["|"] * 3)


@pytest.mark.parametrize("make", [lambda: StreamTable(RowOutput), PythonStreamTable])
@pytest.mark.parametrize("wait", [Wait("text", ("<b",)), None])
def test_what_was_held_is_looked_at_again_for_another_wait(make, wait):
    table, seen = make(), Recorder()
    row = table.open(RowSpec(), tokens("a<", "b"), seen)
    table.direct(row, seen, PLAIN, Counter(), Wait("text", ("<t",)))
    table.feed(row, [0])
    table.direct(row, seen, PLAIN, Counter(), wait)
    table.feed(row, [1])
    assert (b"".join(seen.writes), seen.text) == ((b"a", "<b") if wait else (b"a<b", ""))


def test_a_row_without_a_wait_again_waits_for_nothing():
    table, row, seen = table_with(Wait("text", ("|",)), "a|")
    table.feed(row, [0])
    table.direct(row, seen, PLAIN, Counter())
    table.feed(row, [0])
    assert (seen.writes, [o.text for o in seen.outputs]) == ([b"a", b"a|"], ["|"])
