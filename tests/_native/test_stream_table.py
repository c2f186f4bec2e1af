"""The native StreamTable against its plain-Python twin, and the cases TX-01, TX-02, TX-04 to TX-06."""

import gc
import weakref
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.stream_table import StreamTable
from smg.core.batch import TokenLogprobs
from smg.core.stream import ByteTemplate, Counter, Marker, RowOutput, RowSpec
from smg.text.stream_table import PythonStreamTable

TEMPLATE = ByteTemplate((b"<", b":", b">"), ("sequence", "text"))


class Vocabulary:
    """A decoder over a list of tokens' bytes; ``first`` replaces some at the start of a text."""

    def __init__(self, inner: list[bytes], special: frozenset[int] = frozenset(), first: dict | None = None) -> None:
        self.size = len(inner)
        self._inner, self._special, self._first = inner, special, first or {}

    def token_bytes(self, token: int) -> bytes:
        return self._inner[token] if 0 <= token < self.size else b""

    def first_bytes(self, token: int) -> bytes:
        return self._first.get(token, self.token_bytes(token))

    def is_special(self, token: int) -> bool:
        return token in self._special


class Recorder:
    """Tap and sink in one: what happened, in order."""

    def __init__(self) -> None:
        self.outputs: list[RowOutput] = []
        self.writes: list[bytes] = []
        self.order: list[str] = []

    def on_output(self, row: int, output: RowOutput) -> None:
        self.outputs.append(output)
        self.order.append("tap")

    def write(self, data: bytes) -> bool:
        assert data
        self.writes.append(data)
        self.order.append("sink")
        return True

    async def drain(self) -> None: ...

    @property
    def text(self) -> str:
        return "".join(output.text for output in self.outputs)


def heard(recorder: Recorder) -> list[tuple]:
    return [(o.choice, o.text, list(o.ids), o.logprobs, o.stopped, o.matched) for o in recorder.outputs]


def both() -> list:
    return [StreamTable(RowOutput), PythonStreamTable()]


FRAGMENTS = [b"a", b"b", b"ab", b" a", b"#", b"\n", b'"', b"", "é".encode(), "😀".encode(), b"\xf0\x9f", b"\x98\x80"]
FRAGMENTS += [
    b"\xff",
    b"\xe4\xbd",
    b"\xa0",
    b"\xed",
    b"\xed\xa0",
    b"\xbf",
    b"\xe0\x80",
    b"\xf4\x90",
    b"<|x|>",
    "\ufffd".encode(),
]
STOPS = ["a", "ab", "ba", "aba", "#", "##", "é", "😀", "\ufffd", "b\n", "\ud800", "ab\ud800", "<|x|>", "long stop"]


@st.composite
def streams(draw):
    inner = draw(st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=5), min_size=1, max_size=12))
    known = st.integers(0, len(inner) - 1)
    vocabulary = Vocabulary(
        inner,
        draw(st.frozensets(known, max_size=2)),
        draw(st.dictionaries(known, st.sampled_from(FRAGMENTS), max_size=2)),
    )
    ends = draw(st.frozensets(st.integers(-1, len(inner) + 1), max_size=2))
    spec = RowSpec(
        choice=draw(st.integers(0, 3)),
        skip_special_tokens=draw(st.booleans()),
        end_ids=ends,
        eos_ids=frozenset(sorted(ends)[:1]),
        stop_strings=tuple(draw(st.lists(st.sampled_from(STOPS) | st.text("ab#", min_size=1, max_size=3), max_size=3))),
        stop_visible=draw(st.booleans()),
        min_tokens=draw(st.sampled_from([0, 0, 1, 2, 5])),
        markers=tuple(Marker("m", draw(known)) for _ in range(draw(st.integers(0, 1)))),
        continues=draw(st.booleans()),
    )
    feeds = draw(st.lists(st.lists(st.integers(-1, len(inner) + 1), max_size=6), max_size=8))
    return vocabulary, spec, feeds


def run(table, vocabulary, spec, feeds, *, scored, direct_from=None):
    """Feed everything and return what was heard, written and kept. ``direct_from`` is the feed where direct begins."""
    seen = Recorder()
    counter = Counter(7)
    row = table.open(spec, vocabulary, seen)
    goes_on = []
    for number, ids in enumerate(feeds):
        if number == direct_from:
            table.direct(row, seen, TEMPLATE, counter)
        logprobs = [TokenLogprobs(token, -0.5) for token in ids] if scored else None
        goes_on.append(table.feed(row, ids, logprobs))
    table.finish(row)
    table.finish(row)
    result = heard(seen), b"".join(seen.writes), counter.value, goes_on, list(table.ids(row)), table.text(row)
    assert len(table) == 1
    table.close(row)
    assert len(table) == 0
    return result


@settings(max_examples=200)
@given(streams(), st.booleans())
def test_tapped_rows_equal_the_twin(stream, scored):
    native, twin = (run(table, *stream, scored=scored) for table in both())
    assert native == twin


@settings(max_examples=200)
@given(streams(), st.integers(0, 8), st.booleans())
def test_rows_that_go_direct_equal_the_twin_fed_token_by_token(stream, direct_from, scored):
    vocabulary, spec, feeds = stream
    singles = [[token] for ids in feeds for token in ids]
    native, twin = (run(table, vocabulary, spec, singles, scored=scored, direct_from=direct_from) for table in both())
    assert native == twin
    # However the tokens come together, the bytes are the same: one event for each token that yields text.
    whole = run(StreamTable(RowOutput), vocabulary, spec, [list(chain(*feeds))], scored=scored, direct_from=0)
    single = run(StreamTable(RowOutput), vocabulary, spec, singles, scored=scored, direct_from=0)
    assert (whole[1:3], whole[4:]) == (single[1:3], single[4:])


@given(streams(), st.lists(st.integers(0, 60), max_size=6))
def test_no_cut_changes_the_text(stream, cuts):
    vocabulary, spec, feeds = stream
    ids = list(chain(*feeds))
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    pieces = [ids[start:end] for start, end in pairwise(edges)]
    one, many = (run(StreamTable(RowOutput), vocabulary, spec, f, scored=False) for f in ([ids], pieces))
    assert (one[4:], one[0][-1][4:]) == (many[4:], many[0][-1][4:])


@given(st.lists(st.binary(max_size=4), max_size=20))
def test_the_stream_is_the_decode_with_replacement(chunks):
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(), Vocabulary(chunks), seen)
    table.feed(row, range(len(chunks)))
    table.finish(row)
    assert seen.text == table.text(row) == b"".join(chunks).decode("utf-8", "replace")


@settings(max_examples=50)
@given(st.lists(streams(), max_size=4), st.booleans())
def test_many_rows_at_once_equal_one_after_another(cases, direct):
    outcomes = []
    for together in (True, False):
        table, seen, rows = StreamTable(RowOutput), [Recorder() for _ in cases], []
        for (vocabulary, spec, _), recorder in zip(cases, seen, strict=True):
            rows.append(table.open(spec, vocabulary, recorder))
            if direct:
                table.direct(rows[-1], recorder, TEMPLATE, Counter())
        for turn in range(8):
            batch = [(row, case[2][turn]) for row, case in zip(rows, cases, strict=True) if turn < len(case[2])]
            one_by_one = (row for row, ids in batch if not table.feed(row, ids))
            outcomes.append((together, turn, table.feed_many(batch) if together else list(one_by_one)))
        outcomes.append((together, [(heard(r), r.writes) for r in seen], [table.text(row) for row in rows]))
    half = len(outcomes) // 2
    assert [o[1:] for o in outcomes[:half]] == [o[1:] for o in outcomes[half:]]


def tokens(*chunks: bytes | str) -> Vocabulary:
    return Vocabulary([chunk.encode() if isinstance(chunk, str) else chunk for chunk in chunks])


def deltas(vocabulary: Vocabulary, spec: RowSpec, feeds: list[list[int]]) -> tuple[list[str], RowOutput]:
    """Texts a tapped row yields, feed by feed and at the end, and the output that ended it."""
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(spec, vocabulary, seen)
    for ids in feeds:
        table.feed(row, ids)
    table.finish(row)
    return [output.text for output in seen.outputs], seen.outputs[-1]


def one_by_one(vocabulary: Vocabulary, spec: RowSpec) -> tuple[list[str], RowOutput]:
    return deltas(vocabulary, spec, [[token] for token in range(vocabulary.size)])


def test_TX_01_half_an_emoji_waits_for_the_other_half():
    texts, _ = one_by_one(tokens("Hi ", b"\xf0\x9f", b"\x98\x80", "!"), RowSpec())
    assert texts == ["Hi ", "", "😀", "!", ""]


def test_TX_02_a_byte_that_can_never_complete_does_not_block():
    texts, _ = one_by_one(tokens(b"\xff", "a", "b", b"\xe4\xbd", "c"), RowSpec())
    assert texts == ["\ufffd", "a", "b", "", "\ufffdc", ""]
    assert one_by_one(tokens("a", b"\xf0\x9f\x98"), RowSpec())[0] == ["a", "", "\ufffd"]


@pytest.mark.parametrize("table", both())
@pytest.mark.parametrize(
    ("chunks", "texts"),
    [
        ([b"\xed", b"\xa0", "a"], ["", "\ufffd" * 2, "a", ""]),
        ([b"\xed\xbf", b"\xbf", "a"], ["\ufffd" * 2, "\ufffd", "a", ""]),
        ([b"\xed\x9f", b"\xbf", "a"], ["", "\ud7ff", "a", ""]),
        ([b"\xe0", b"\x80", "a"], ["", "\ufffd" * 2, "a", ""]),
        ([b"\xf4\x90", "a"], ["\ufffd" * 2, "a", ""]),
    ],
)
def test_TX_02_what_can_be_no_character_is_replaced_at_once(table, chunks, texts):
    seen = Recorder()
    row = table.open(RowSpec(), tokens(*chunks), seen)
    for token in range(len(chunks)):
        table.feed(row, [token])
    table.finish(row)
    assert [output.text for output in seen.outputs] == texts
    table.close(row)


@pytest.mark.parametrize("chunks", [["go S", "TO", "P now"], ["go STOP now"], list("go STOP now")])
def test_TX_04_a_stop_string_across_deltas(chunks):
    texts, last = one_by_one(tokens(*chunks), RowSpec(stop_strings=("STOP",)))
    assert "".join(texts) == "go "
    assert (last.stopped, last.matched) == (True, "STOP")


@pytest.mark.parametrize(("chunks", "text"), [(["a #", "# b"], "a ## b"), (["end #"], "end #"), (["end ##"], "end ##")])
def test_TX_05_held_text_that_was_no_stop_leaves_before_the_end(chunks, text):
    vocabulary = tokens(*chunks, "")
    eos = vocabulary.size - 1
    for spec in (RowSpec(stop_strings=("###",), end_ids=frozenset({eos}), eos_ids=frozenset({eos})), RowSpec()):
        texts, last = one_by_one(vocabulary, spec)
        assert "".join(texts) == text
        assert last.matched is None


def test_TX_06_a_long_stop_string_holds_back_nothing_that_cannot_match():
    spec = RowSpec(stop_strings=("<|a-very-long-stop-marker-of-40-characters|>",))
    assert one_by_one(tokens("I", " am", " here"), spec)[0] == ["I", " am", " here", ""]
    assert one_by_one(tokens("a <", " b", "<"), spec)[0] == ["a ", "< b", "", "<"]


def test_ids_after_a_stop_are_neither_taken_nor_counted():
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(stop_strings=("b",)), tokens("a", "b", "c"), seen)
    assert table.feed(row, [0, 1, 2], [TokenLogprobs(token, -1.0) for token in (0, 1, 2)]) is False
    assert heard(seen) == [(0, "a", [0, 1], [TokenLogprobs(0, -1.0), TokenLogprobs(1, -1.0)], True, "b")]
    assert table.feed(row, [0]) is False
    table.finish(row)
    assert (table.ids(row), table.text(row), len(seen.outputs)) == ([0, 1], "a", 1)


def test_a_hidden_end_token_has_no_text_and_no_logprobs():
    vocabulary = Vocabulary([b"a", b"<eos>", b"<eot>"], frozenset({1, 2}))
    for token, matched in ((1, None), (2, 2)):
        table, seen = StreamTable(RowOutput), Recorder()
        row = table.open(RowSpec(end_ids=frozenset({1, 2}), eos_ids=frozenset({1})), vocabulary, seen)
        scores = [TokenLogprobs(0, -1.0), TokenLogprobs(token, -1.0)]
        assert table.feed(row, [0, token], scores) is False
        assert heard(seen) == [(0, "a", [0, token], scores[:1], True, matched)]


def test_one_write_for_a_feed_and_one_event_for_each_token_with_text():
    table, seen, counter = StreamTable(RowOutput), Recorder(), Counter(5)
    row = table.open(RowSpec(stop_strings=("##",)), tokens('say "hi"\n', "#", "x", b"\xf0\x9f", "ok"), seen)
    table.direct(row, seen, TEMPLATE, counter)
    assert table.feed(row, [0, 1, 2, 3])
    assert seen.writes == [rb"<5:say \"hi\"\n><6:#x>"]
    assert table.feed(row, [1])
    assert seen.writes[1:] == ["<7:\ufffd>".encode()]
    assert table.feed(row, [3])
    table.finish(row)
    assert seen.writes[2:] == ["<8:#\ufffd>".encode()]
    assert counter.value == 9
    assert [(o.text, o.stopped) for o in seen.outputs] == [("", False)]


def test_the_tap_of_a_direct_row_hears_of_the_stop_after_the_text_left():
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(stop_strings=("!",)), tokens("a", "!"), seen)
    table.direct(row, seen, ByteTemplate((b"[", b"]"), ("text",)), Counter())
    assert table.feed(row, [0, 1]) is False
    assert (seen.writes, seen.order) == ([b"[a]"], ["sink", "tap"])
    assert heard(seen) == [(0, "", [0, 1], None, True, "!")]


def test_templates_may_change_and_share_a_counter():
    table, seen, counter = StreamTable(RowOutput), Recorder(), Counter()
    rows = [table.open(RowSpec(choice=choice), tokens("a", "b"), seen) for choice in (0, 1)]
    for row, template in zip(rows, (TEMPLATE, ByteTemplate((b"", b"", b""), ("text", "sequence"))), strict=True):
        table.direct(row, seen, template, counter)
    table.feed_many([(rows[0], [0, 1]), (rows[1], [0])])
    table.direct(rows[0], seen, ByteTemplate((b"plain ", b""), ("text",)), counter)
    table.feed(rows[0], [1])
    assert seen.writes == [b"<0:a><1:b>", b"a2", b"plain b"]
    assert counter.value == 3


@pytest.mark.parametrize(
    ("pieces", "holes"),
    [((b"",), ("text",)), ((b"", b""), ("name",)), ((b"", "x"), ("text",)), ((b"", None), ("text",))],
)
def test_a_template_that_does_not_fit_leaves_the_row_as_it_was(pieces, holes):
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(), tokens("a"), seen)
    with pytest.raises((ValueError, TypeError)):
        table.direct(row, seen, ByteTemplate(pieces, holes), Counter())
    table.feed(row, [0])
    assert (seen.text, seen.writes) == ("a", [])


def test_a_tap_may_close_rows_of_the_batch_that_is_being_fed():
    table, seen = StreamTable(RowOutput), Recorder()

    class Closer(Recorder):
        def on_output(self, row, output):
            for open_row in rows:
                table.close(open_row)
            rows[:] = [table.open(RowSpec(), tokens("new"), seen)]

    rows = [table.open(RowSpec(), tokens("a"), Closer()), table.open(RowSpec(), tokens("b"), seen)]
    first, second = rows
    assert table.feed_many([(first, [0]), (second, [0])]) == [first, second]
    assert (seen.outputs, len(table), table.ids(rows[0])) == ([], 1, [])


def test_closed_rows_are_unknown_and_their_handles_are_used_again():
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(), tokens("a"), seen)
    table.feed(row, [0])
    table.close(row)
    for call in (table.ids, table.text, table.finish, table.close):
        with pytest.raises(KeyError):
            call(row)
    with pytest.raises(KeyError):
        table.feed(row, [0])
    with pytest.raises(KeyError):
        table.feed_many([(row, [0])])
    assert table.open(RowSpec(), tokens("b"), seen) == row
    assert (table.ids(row), table.text(row)) == ([], "")


def test_ids_beyond_31_bits_are_refused_before_anything_is_taken():
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(), tokens("a"), seen)
    for token in (2**31, -(2**31) - 1, 2**70):
        with pytest.raises((ValueError, OverflowError)):
            table.feed(row, [0, token])
    assert (table.ids(row), seen.outputs) == ([], [])


def test_stop_strings_that_cannot_be_scanned_open_no_row():
    table = StreamTable(RowOutput)
    for stops in (("",), ("x" * 5_000_000,)):
        with pytest.raises(ValueError, match=r"empty|too many"):
            table.open(RowSpec(stop_strings=stops), tokens("a"), Recorder())
    assert len(table) == 0


def test_a_closed_row_lets_go_of_its_tap_and_sink():
    table, tap, sink = StreamTable(RowOutput), Recorder(), Recorder()
    row = table.open(RowSpec(), tokens("a"), tap)
    table.direct(row, sink, TEMPLATE, Counter())
    table.feed(row, [0])
    table.close(row)
    watched = [weakref.ref(tap), weakref.ref(sink)]
    del tap, sink
    gc.collect()
    assert [watch() for watch in watched] == [None, None]


def test_a_long_answer_grows_without_losing_anything():
    table, seen = StreamTable(RowOutput), Recorder()
    row = table.open(RowSpec(), tokens("word ", "é"), seen)
    for _ in range(200):
        table.feed(row, [0, 1] * 50)
    table.finish(row)
    assert table.text(row) == seen.text == "word é" * 10_000
    assert table.ids(row) == [0, 1] * 10_000
