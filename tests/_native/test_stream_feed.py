"""Rows fed by a gRPC stream: what goes to the socket, to the sink, to the taps and to Python (DESIGN 6, the pump).

Numbered events are in ``test_stream_feed_numbers.py``.
"""

import contextlib
import random
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.inlet import Tokens
from smg._native.stream_feed import StreamFeed
from smg._native.stream_table import StreamTable
from smg.core.stream import ByteTemplate, Counter, RowOutput, RowSpec, Wait
from tests import h2_peer as h2
from tests._native.test_grpc_stream import chunk, complete
from tests._native.test_stream_table import Recorder, Vocabulary
from tests.h2_native import WINDOW, connected, opened, sent

WORDS = [b"one ", b"two ", b"\xc3", b"\xa9", b'"', b"stop", b"<eos>"]
END = 6
TEMPLATE = ByteTemplate((b"<", b">"), ("text",))
ROOM = 4096


class Pipe(Recorder):
    """A sink with a socket to lend, whose peer has little room."""

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.peer = socket.socketpair()
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        self.ours.setblocking(False)
        self.peer.setblocking(False)
        self.busy = False
        self.lent = False
        self.rests: list[bytes] = []

    def lend(self, feeder: StreamFeed) -> int:
        assert not self.lent
        self.lent = not self.busy
        return self.ours.fileno() if self.lent else -1

    def give_back(self, rest: bytes) -> None:
        assert self.lent
        self.lent = False
        self.rests += [rest] if rest else []

    def received(self) -> bytes:
        out = b""
        try:
            while piece := self.peer.recv(1 << 16):
                out += piece
        except BlockingIOError:
            pass
        return out


def bodies(raw: bytes) -> bytes:
    """The content of whole HTTP chunks."""
    out = b""
    while raw:
        size, raw = raw.split(b"\r\n", 1)
        count = int(size, 16)
        assert raw[count : count + 2] == b"\r\n"
        out, raw = out + raw[:count], raw[count + 2 :]
    return out


@pytest.fixture
def pipe():
    pipe = Pipe()
    yield pipe
    pipe.ours.close()
    pipe.peer.close()


class Fed:
    """A connection with one stream and its rows: direct ones with a sink, tapped ones without."""

    def __init__(self, sink=None, rows: int = 1, direct: bool = True, **spec) -> None:
        self.connection = connected()
        [self.stream] = opened(self.connection, tokens=True)
        self.table = StreamTable(RowOutput)
        self.taps = [Recorder() for _ in range(rows)]
        vocabulary = Vocabulary(WORDS, frozenset({END}))
        specs = [RowSpec(choice=index, end_ids=frozenset({END}), **spec) for index in range(rows)]
        self.rows = [self.table.open(spec, vocabulary, tap) for spec, tap in zip(specs, self.taps, strict=True)]
        for row in self.rows if direct else ():
            self.table.direct(row, sink, TEMPLATE, Counter())
        self.feed = StreamFeed(self.stream, self.table, self.rows)

    def say(self, *messages: bytes) -> bool:
        """Let messages arrive in one read; True when Python is needed."""
        self.connection.feed(h2.data(self.stream.id, b"".join(map(h2.message, messages))))
        return self.connection.take_ready() == [self.stream]

    def take(self) -> list[bytes | list[int]]:
        items = self.connection.take(self.stream)
        return [item.ids if isinstance(item, Tokens) else item for item in items]


class TestSocket:
    def test_each_read_is_one_chunk_on_the_socket_and_python_sleeps(self, pipe):
        fed = Fed(pipe)
        assert fed.feed.resume()
        assert not fed.say(chunk([0]), chunk([1, 0]))
        assert not fed.say(chunk([2]))
        assert not fed.say(chunk([3]))
        assert pipe.received() == b"12\r\n<one ><two ><one >\r\n" + b"4\r\n<\xc3\xa9>\r\n"
        assert (pipe.writes, fed.take(), fed.taps[0].outputs) == ([], [], [])
        assert fed.table.ids(fed.rows[0]) == [0, 1, 0, 2, 3]
        assert abs(fed.feed.last_sent - time.monotonic()) < 60

    def test_what_is_fed_counts_as_read(self, pipe):
        fed = Fed(pipe)
        fed.feed.resume()
        message = chunk([4] * 4000)
        for _ in range(WINDOW // len(message)):
            fed.say(message)
            fed.feed.pause()
            pipe.received()
            fed.feed.resume()
        assert any(frame.kind == h2.WINDOW_UPDATE and frame.stream for frame in sent(fed.connection))

    def test_a_full_socket_gives_the_rest_of_its_chunk_back_and_feeds_no_further(self, pipe):
        fed = Fed(pipe)
        fed.feed.resume()
        ids = [0] * 60_000
        assert fed.say(chunk(ids))
        assert fed.say(chunk([1, 1]))
        assert [note.ids for note in fed.feed.pause()] == [[]]
        assert not pipe.lent
        assert bodies(pipe.received() + b"".join(pipe.rests)) == b"<one >" * len(ids)
        assert fed.take() == [[1, 1]], "collected, and charged to the stream's window"

    def test_a_socket_that_takes_nothing_leaves_the_events_to_the_sink(self, pipe):
        fed = Fed(pipe)
        with contextlib.suppress(BlockingIOError):
            while True:
                pipe.ours.send(bytes(512))
        fed.feed.resume()
        assert fed.say(chunk([0]))
        assert fed.say(chunk([1]))
        fed.feed.pause()
        assert (pipe.writes, pipe.rests) == ([b"<one ><two >"], [])

    def test_a_closed_peer_is_left_to_the_transport(self, pipe):
        fed = Fed(pipe)
        fed.feed.resume()
        pipe.peer.close()
        assert fed.say(chunk([0]))
        fed.feed.pause()
        assert pipe.writes == [b"<one >"]

    def test_a_busy_socket_is_borrowed_later(self, pipe):
        fed = Fed(pipe)
        pipe.busy = True
        assert not fed.feed.resume()
        assert fed.say(chunk([0]))
        pipe.busy = False
        fed.feed.arm()
        assert not pipe.lent, "what waits for the sink comes first"
        fed.feed.pause()
        assert fed.feed.resume()
        assert not fed.say(chunk([1]))
        assert (pipe.writes, pipe.received()) == ([b"<one >"], b"6\r\n<two >\r\n")

    def test_a_socket_that_others_need_is_given_back_at_once(self, pipe):
        fed = Fed(pipe)
        fed.feed.resume()
        fed.feed.disarm()
        assert not pipe.lent
        assert fed.say(chunk([0]))
        fed.feed.pause()
        assert (pipe.writes, pipe.received()) == ([b"<one >"], b"")


class TestPython:
    def test_without_a_socket_every_batch_wakes_for_the_sink(self):
        sink = Recorder()
        fed = Fed(sink)
        assert fed.feed.resume()
        assert fed.say(chunk([0]), chunk([1]))
        [note] = fed.feed.pause()
        assert (sink.writes, note.ids) == ([b"<one ><two >"], [])

    @pytest.mark.parametrize("cold", [complete(), chunk([1], index=7), chunk([1 << 31])], ids=["end", "choice", "id"])
    def test_after_a_message_for_python_everything_waits_for_it(self, cold, pipe):
        fed = Fed(pipe)
        fed.feed.resume()
        assert fed.say(chunk([0]), cold, chunk([1]))
        fed.feed.pause()
        assert (pipe.writes, pipe.received()) == ([b"<one >"], b""), "in one write with what Python adds"
        assert fed.take()[-1][-1] == 1
        assert fed.table.ids(fed.rows[0]) == [0]
        fed.feed.resume()
        fed.say(chunk([1]))
        assert fed.table.ids(fed.rows[0]) == [0, 1]

    def test_a_paused_feed_collects(self, pipe):
        fed = Fed(pipe)
        assert fed.say(chunk([0]), chunk([1]))
        assert fed.take() == [[0, 1]]
        assert fed.table.ids(fed.rows[0]) == []

    @pytest.mark.parametrize(
        ("ids", "matched", "text"),
        [([0, 5, 1], "stop", b"<one >"), ([0, END, 1], END, b"<one >")],
        ids=["string", "token"],
    )
    def test_a_row_that_stops_tells_its_tap_after_its_text(self, ids, matched, text):
        sink = Recorder()
        fed = Fed(sink, stop_strings=("stop",))
        fed.taps[0].order = sink.order
        fed.feed.resume()
        assert fed.say(chunk(ids), chunk([1]))
        fed.feed.pause()
        [output] = fed.taps[0].outputs
        assert (sink.writes, sink.order) == ([text], ["sink", "tap"])
        assert (output.stopped, output.matched, output.ids) == (True, matched, ids[:2])
        assert fed.take() == [[1]]

    def test_notes_carry_the_counts_of_the_choices_that_were_fed(self, pipe):
        fed = Fed(pipe, rows=3)
        fed.feed.resume()
        fed.say(chunk([0], index=2, prompt_tokens=9, cached_tokens=4), chunk([0], index=2, prompt_tokens=9))
        [note] = fed.feed.pause()
        assert (note.index, note.prompt_tokens, note.cached_tokens) == (2, 9, 4)
        assert fed.feed.pause() == []

    def test_rows_with_several_sinks_are_not_fed(self):
        fed = Fed(Recorder(), rows=2)
        assert StreamFeed.feeds(fed.table, fed.rows)
        assert not StreamFeed.feeds(fed.table, [])
        fed.table.direct(fed.rows[0], Recorder(), TEMPLATE, Counter())
        assert not StreamFeed.feeds(fed.table, fed.rows)
        with pytest.raises(ValueError, match="cannot be fed"):
            StreamFeed(fed.stream, fed.table, fed.rows)

    def test_rows_and_streams_may_go_before_the_feed(self, pipe):
        fed = Fed(pipe)
        fed.feed.resume()
        fed.say(chunk([0]))
        fed.table.close(fed.rows[0])
        fed.say(chunk([1]))
        fed.connection.drop(fed.stream)
        del fed.stream, fed.connection
        fed.feed.pause()


class TestTapped:
    def test_buffered_rows_hear_of_all_their_text_at_once(self):
        fed = Fed(rows=2, direct=False)
        assert fed.feed.resume()
        assert not fed.say(chunk([0]), chunk([1], index=1), chunk([1]))
        assert not fed.say(chunk([1]))
        assert fed.say(complete())
        fed.feed.pause()
        assert [tap.text for tap in fed.taps] == ["one two two ", "two "]
        assert [len(tap.outputs) for tap in fed.taps] == [1, 1]

    @given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=8), st.integers(0, 2**32))
    def test_however_it_is_fed_the_rows_are_the_same(self, chunks, seed):
        draw = random.Random(seed)
        sink, twin = Recorder(), Recorder()
        fed = Fed(sink, stop_strings=("two stop",))
        plain = Fed(twin, stop_strings=("two stop",))
        for ids in chunks:
            plain.table.feed(plain.rows[0], ids)
            if draw.random() < 0.5:
                fed.feed.resume()
            fed.say(chunk(ids))
            if draw.random() < 0.5:
                fed.feed.pause()
                for item in fed.take():
                    fed.table.feed(fed.rows[0], item)
        fed.feed.pause()
        for item in fed.take():
            fed.table.feed(fed.rows[0], item)
        assert fed.table.ids(fed.rows[0]) == plain.table.ids(plain.rows[0])
        assert b"".join(sink.writes) == b"".join(twin.writes)
        assert [o.matched for o in fed.taps[0].outputs] == [o.matched for o in plain.taps[0].outputs]


class TestParsed:
    """Rows that a parser reads: fed while it waits, collected while it works."""

    WAIT = Wait("text", ("stop",))

    def wait(self, fed: Fed, sink, row: int = 0) -> None:
        fed.table.direct(fed.rows[row], sink, TEMPLATE, Counter(), self.WAIT)

    def test_python_sleeps_while_the_parser_waits(self, pipe):
        fed = Fed(pipe)
        self.wait(fed, pipe)
        fed.feed.resume()
        assert not fed.say(chunk([0]), chunk([1]))
        assert bodies(pipe.received()) == b"<one ><two >"
        assert fed.taps[0].outputs == []

    def test_what_it_waits_for_wakes_python_with_the_text_from_there_on(self, pipe):
        fed = Fed(pipe)
        fed.taps[0].order = pipe.order
        self.wait(fed, pipe)
        fed.feed.resume()
        assert fed.say(chunk([0, 5, 1]), chunk([1]))
        fed.feed.pause()
        [output] = fed.taps[0].outputs
        assert (pipe.writes, pipe.order) == ([b"<one >"], ["sink", "tap"]), "what was written before comes first"
        assert (output.text, list(output.ids), output.stopped) == ("stoptwo ", [0, 5, 1], False)
        assert fed.take() == [[1]], "what follows waits for the parser"

    def test_while_the_parser_works_each_batch_is_for_it(self, pipe):
        fed = Fed(pipe)
        self.wait(fed, pipe)
        fed.feed.resume()
        fed.say(chunk([5]))
        fed.feed.pause()
        assert fed.feed.resume(), "there is no socket to wait for"
        assert fed.say(chunk([0]))
        assert fed.feed.pause() == []
        assert fed.take() == [[0]]
        self.wait(fed, pipe)
        assert fed.feed.resume()
        assert not fed.say(chunk([1]))
        assert bodies(pipe.received()) == b"<two >"

    def test_rows_take_turns_by_themselves(self, pipe):
        fed = Fed(pipe, rows=2)
        for row in (0, 1):
            self.wait(fed, pipe, row)
        fed.feed.resume()
        fed.say(chunk([5]))
        fed.feed.pause()
        assert StreamFeed.feeds(fed.table, fed.rows)
        fed.feed.resume()
        assert not fed.say(chunk([0], index=1))
        assert bodies(pipe.received()) == b"<one >"
        assert fed.say(chunk([1], index=0))
        fed.feed.pause()
        assert fed.take() == [[1]]

    def test_a_row_that_ends_while_it_is_fed_tells_what_was_held(self, pipe):
        fed = Fed(pipe)
        self.wait(fed, pipe)
        fed.feed.resume()
        assert fed.say(chunk([0, END]))
        fed.feed.pause()
        [output] = fed.taps[0].outputs
        assert (pipe.writes, output.text, output.stopped, output.matched) == ([b"<one >"], "", True, END)
