"""Markers that count only as tokens of their own: a seal stands before each (``core.stream.SEAL``)."""

from itertools import chain, pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from smg._native.stream_table import StreamTable
from smg.core.stream import SEAL, ByteTemplate, Counter, Marker, RowOutput, RowSpec, Wait
from smg.text.stream_table import PythonStreamTable
from tests._native.test_stream_table import Recorder, Vocabulary, both, heard

TEMPLATE = ByteTemplate((b"<", b":", b">"), ("sequence", "text"))
THINK = b"<t>"
FRAGMENTS = [b"a", b"b", b"<", b"<t", b">", b"<t>", b"t>a", b"", "é".encode(), b"\xf0\x9f", b"\xff", b"\n"]
FRAGMENTS += [SEAL.encode(), b"\xef\xb7", b"\x90", b"\xef", b"\xb7\x90"]
STOPS = ["<t>", "a<", "b<t>a", "<t><t>", "t>\n", ">", "<", "\ufffd<", "\ufffd"]


@st.composite
def streams(draw):
    """A vocabulary of fragments and three tokens that spell ``<t>``, two of them sealed, and feeds of it."""
    inner = draw(st.lists(st.sampled_from(FRAGMENTS), max_size=8)) + [THINK] * 3
    sealed, size = [len(inner) - 1, len(inner) - 2], len(inner)
    spec = RowSpec(
        skip_special_tokens=draw(st.booleans()),
        stop_strings=tuple(draw(st.lists(st.sampled_from(STOPS), max_size=2))),
        stop_visible=draw(st.booleans()),
        end_ids=frozenset(draw(st.sampled_from([(), (0,), (sealed[1],)]))),
        markers=(Marker("<t>", sealed[0], True), Marker("<t>", sealed[1], True), Marker("<x>")),
    )
    feeds = draw(st.lists(st.lists(st.integers(0, size - 1) | st.sampled_from(sealed), max_size=6), max_size=6))
    return Vocabulary(inner, frozenset(sealed)), spec, feeds


def run(table, vocabulary, spec, feeds, wait=None):
    """What was heard, written, and kept; with ``wait`` the row goes direct before each feed."""
    seen, counter = Recorder(), Counter()
    row = table.open(spec, vocabulary, seen)
    for ids in feeds:
        if wait is not None:
            table.direct(row, seen, TEMPLATE, counter, wait)
        table.feed(row, ids)
    table.finish(row)
    return heard(seen), b"".join(seen.writes), table.ids(row), table.text(row)


@settings(max_examples=400)
@given(streams())
def test_tapped_rows_equal_the_twin(stream):
    native, twin = (run(table, *stream) for table in both())
    assert native == twin


@settings(max_examples=300)
@given(streams(), st.sampled_from([(SEAL,), ("<t", SEAL), ("ab", SEAL + "<t>", SEAL)]))
def test_parsed_rows_equal_the_twin_fed_token_by_token(stream, marks):
    vocabulary, spec, feeds = stream
    singles = [[token] for token in chain(*feeds)]
    native, twin = (run(table, vocabulary, spec, singles, Wait("text", marks)) for table in both())
    assert native == twin
    assert SEAL.encode() not in native[1], "no seal goes direct"


@given(streams(), st.lists(st.integers(0, 40), max_size=6))
def test_no_cut_changes_where_seals_are(stream, cuts):
    vocabulary, spec, feeds = stream
    ids = list(chain(*feeds))
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    one, many = (
        "".join(output[1] for output in run(StreamTable(RowOutput), vocabulary, spec, cut)[0])
        for cut in ([ids], [ids[start:end] for start, end in pairwise(edges)])
    )
    assert one == many


@settings(max_examples=200)
@given(streams())
def test_seals_change_nothing_else(stream):
    vocabulary, spec, feeds = stream
    # A seal that tokens spell becomes U+FFFD in the one row only, and there it may be what a stop string waits for.
    assume(not any("\ufffd" in stop for stop in spec.stop_strings))
    bare = RowSpec(
        skip_special_tokens=spec.skip_special_tokens,
        stop_strings=spec.stop_strings,
        stop_visible=spec.stop_visible,
        end_ids=spec.end_ids,
        markers=tuple(Marker(marker.text, marker.token) for marker in spec.markers),
    )
    outputs, _, ids, text = run(StreamTable(RowOutput), vocabulary, spec, feeds)
    plain, _, plain_ids, plain_text = run(StreamTable(RowOutput), vocabulary, bare, feeds)
    spelled = str.maketrans({SEAL: "\ufffd"})
    assert (ids, text) == (plain_ids, plain_text.translate(spelled))
    assert [(text.replace(SEAL, ""), *rest) for _, text, *rest in outputs] == [
        (text.translate(spelled), *rest) for _, text, *rest in plain
    ]


@pytest.mark.parametrize("make", [lambda: StreamTable(RowOutput), PythonStreamTable], ids=["native", "twin"])
class TestBoth:
    def spec(self, **fields):
        return RowSpec(markers=(Marker("<t>", 0, True),), **fields)

    def outputs(self, make, spec, ids, *inner):
        return [
            output[1]
            for output in run(make(), Vocabulary([THINK, *inner], frozenset([0])), spec, [[i] for i in ids])[0]
        ]

    def test_a_token_is_sealed_and_its_text_in_pieces_is_not(self, make):
        assert self.outputs(make, self.spec(), [0, 1, 2], b"<t", b">") == [SEAL + "<t>", "<t", ">", ""]

    def test_a_seal_that_tokens_spell_is_none(self, make):
        assert "".join(self.outputs(make, self.spec(), [1, 2, 3], b"\xef", b"\xb7\x90", b"<t>")) == "\ufffd<t>"

    def test_half_a_character_before_it_stays_before_it(self, make):
        assert "".join(self.outputs(make, self.spec(), [1, 0], b"\xf0\x9f")) == "\ufffd" + SEAL + "<t>"

    def test_a_stop_string_reads_past_the_seal(self, make):
        assert self.outputs(make, self.spec(stop_strings=("a<t>b",)), [1, 0, 2], b"xa", b"b") == ["x", "", ""]

    def test_what_a_stop_string_held_comes_with_its_seal(self, make):
        assert self.outputs(make, self.spec(stop_strings=("a<t>b",)), [1, 0, 1], b"xa") == [
            "x",
            "",
            "a" + SEAL + "<t>x",
            "a",
        ]

    def test_a_marker_that_begins_a_stop_string_is_held_with_its_seal(self, make):
        assert self.outputs(make, self.spec(stop_strings=("<t>\n",)), [0, 1], b"a") == ["", SEAL + "<t>a", ""]
