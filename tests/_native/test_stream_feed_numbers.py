"""Numbered events of fed rows: one counter for all rows of a response, and for what Python writes (DESIGN 6)."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.stream_feed import StreamFeed
from smg._native.stream_table import StreamTable
from smg.core.stream import ByteTemplate, Counter, RowOutput, RowSpec, Wait
from smg.text.stream_table import PythonStreamTable
from tests import h2_peer as h2
from tests._native.test_grpc_stream import chunk
from tests._native.test_stream_feed import Pipe, bodies, pipe  # noqa: F401 - a fixture
from tests._native.test_stream_table import Recorder, Vocabulary
from tests.h2_native import connected, opened

WORDS = [b"one ", b"two ", b"\xc3", b"\xa9", b'"', b"stop", b"|", b"<eos>"]
END = 7
ROWS = 3
TEMPLATES = [
    ByteTemplate((b"<", b":", b">"), ("sequence", "text")),
    ByteTemplate((b"(", b" ", b" ", b")"), ("text", "sequence", "sequence")),
    ByteTemplate((b"{", b"}"), ("text",)),
]
WAIT = Wait("text", ("|",))
VOCABULARY = Vocabulary(WORDS, frozenset({END}))


class Wire(Pipe):
    """A sink that sends what it is given at once, so that the peer sees everything in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = b""

    def write(self, data: bytes) -> bool:
        assert not self.lent, "somebody else writes"
        # Room first: many small writes take more of a socket than their bytes.
        self.seen += self.received()
        self.ours.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def all(self) -> bytes:
        return bodies(self.seen + self.received())


class Side:
    """Rows of one response over ``table``, of which parsers read the ``parsed``; Python writes numbered events too."""

    def __init__(self, table, sink, parsed: frozenset[int] = frozenset()) -> None:
        self.table, self.sink, self.counter = table, sink, Counter()
        self.tapped = set(range(ROWS))
        self.parsed = parsed
        stops = ("two stop",) if parsed else ()
        specs = [RowSpec(index, end_ids=frozenset({END}), stop_strings=stops) for index in range(ROWS)]
        self.rows = [table.open(spec, VOCABULARY, self) for spec in specs]
        self.go()

    def go(self) -> None:
        """Let all rows go direct that were tapped."""
        for index in self.tapped:
            wait = WAIT if index in self.parsed else None
            self.table.direct(self.rows[index], self.sink, TEMPLATES[index], self.counter, wait)
        self.tapped.clear()

    def say(self, what: str) -> None:
        """An event of Python's own."""
        self.sink.write(b"[%d %b]" % (self.counter.take(), what.encode()))

    def on_output(self, row: int, output: RowOutput) -> None:
        self.say(f"{output.choice} {output.text!r} {output.stopped} {output.matched}")
        if output.choice in self.parsed:
            self.tapped.add(output.choice)


class Fed(Side):
    """The same, fed by a stream."""

    def __init__(self, sink, parsed: frozenset[int] = frozenset()) -> None:
        super().__init__(StreamTable(RowOutput), sink, parsed)
        self.connection = connected()
        [self.stream] = opened(self.connection, tokens=True)
        self.feed = StreamFeed(self.stream, self.table, self.rows)
        self.feed.resume()

    def arrive(self, *messages: tuple[int, list[int]]) -> bool:
        """Let messages come in one read, and do what Python has to; returns whether it had to do anything."""
        data = b"".join(h2.message(chunk(ids, index=index)) for index, ids in messages)
        self.connection.feed(h2.data(self.stream.id, data))
        needed = self.connection.take_ready() == [self.stream]
        if needed:
            self.rest()
            self.feed.resume()
        return needed

    def rest(self) -> None:
        """Stop feeding, and feed from Python what was collected."""
        self.feed.pause()
        for item in self.connection.take(self.stream):
            self.go()
            self.table.feed(self.rows[item.index], item.ids)
        self.go()


def test_rows_of_all_kinds_and_python_number_from_one_counter(pipe):  # noqa: F811
    fed = Fed(pipe)
    assert StreamFeed.feeds(fed.table, fed.rows)
    assert not fed.arrive((0, [0, 1]), (1, [0]), (2, [1]), (0, [1]))
    assert not fed.arrive((1, [4]))
    assert bodies(pipe.received()) == b'<0:one ><1:two >(one  2 2){two }<3:two >(\\" 4 4)'
    fed.feed.pause()
    assert fed.counter.value == 5, "what Python reads is what comes next"
    fed.say("python")
    fed.feed.resume()
    assert not fed.arrive((0, [0]))
    assert (pipe.writes, bodies(pipe.received())) == ([b"[5 python]"], b"<6:one >")


def test_a_row_may_get_another_counter_while_the_feed_rests(pipe):  # noqa: F811
    fed = Fed(pipe)
    fed.arrive((0, [0]))
    fed.feed.pause()
    fed.table.direct(fed.rows[0], pipe, TEMPLATES[0], Counter(90))
    fed.feed.resume()
    assert not fed.arrive((0, [0]), (1, [1]))
    assert bodies(pipe.received()) == b"<0:one ><90:one >(two  1 1)"


def test_a_tap_sees_the_number_that_comes_after_what_was_written(pipe):  # noqa: F811
    fed = Fed(pipe, frozenset({0}))
    assert fed.arrive((0, [0]), (0, [1, 6, 0]))
    assert pipe.writes == [b"<0:one ><1:two >", b"[2 0 '|one ' False None]"]


@st.composite
def feeds(draw):
    """Reads of several messages each, and after which of them Python speaks."""
    message = st.tuples(st.integers(0, ROWS - 1), st.lists(st.integers(0, 6), min_size=1, max_size=5))
    reads = draw(st.lists(st.lists(message, min_size=1, max_size=3), max_size=8))
    return reads, draw(st.frozensets(st.integers(0, 8)))


@pytest.mark.parametrize("kind", [Wire, Recorder])
@settings(max_examples=150, deadline=None)
@given(feeds(), st.frozensets(st.integers(0, ROWS - 1)))
def test_the_bytes_are_those_of_the_twin_fed_message_by_message(kind, feeds, parsed):
    reads, speaks = feeds
    twin = Side(PythonStreamTable(), Recorder(), parsed)
    fed = Fed(kind(), parsed)
    with contextlib.ExitStack() as stack:
        if kind is Wire:
            stack.callback(fed.sink.ours.close)
            stack.callback(fed.sink.peer.close)
        for number, read in enumerate(reads):
            # What comes in one read after a moment for Python is collected, and reaches the rows in fewer pieces.
            for messages in [[message] for message in read] if parsed else [read]:
                fed.arrive(*messages)
            for index, ids in read:
                twin.table.feed(twin.rows[index], ids)
                twin.go()
            if number in speaks:
                fed.rest()
                for side in (fed, twin):
                    side.say("between")
                fed.feed.resume()
        fed.rest()
        for side in (fed, twin):
            for row in side.rows:
                side.table.finish(row)
        wire = fed.sink.all() if kind is Wire else b"".join(fed.sink.writes)
        assert wire == b"".join(twin.sink.writes)
        assert fed.counter.value == twin.counter.value
        for mine, theirs in zip(fed.rows, twin.rows, strict=True):
            assert list(fed.table.ids(mine)) == list(twin.table.ids(theirs))
