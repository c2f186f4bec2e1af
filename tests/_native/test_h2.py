"""The native HTTP/2 connection, frame by frame and without a network (RFC 9113; spec engine-contract 4.4)."""

import random
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.grpc_stream import Stream
from smg._native.h2 import Connection
from tests import h2_peer as h2
from tests.h2_native import CALM, FLOW_CONTROL, FRAME_SIZE, PROTOCOL, connected, opened, sent


class TestOpening:
    def test_preface_settings_and_a_wide_connection(self):
        out = Connection().output()
        assert out.startswith(h2.PREFACE)
        settings_frame, update = h2.parse(out)
        assert settings_frame.payload.hex(" ", 2) == "0002 0000 0000 0004 0004 0000 0006 0001 0000"
        assert (update.kind, update.stream, update.word) == (h2.WINDOW_UPDATE, 0, (16 << 20) - 65535)

    def test_settings_are_acknowledged(self):
        connection = Connection()
        assert not connection.settled
        connection.output()
        connection.feed(h2.settings({99: 5}))
        assert connection.settled
        assert sent(connection) == [(h2.SETTINGS, h2.ACK, 0, b"")]
        connection.feed(h2.frame(h2.SETTINGS, h2.ACK))
        assert sent(connection) == []

    def test_a_request_waits_for_the_settings(self):
        connection = Connection()
        connection.output()
        stream = Stream(None, b"\x82", b"ask", None)
        connection.open(stream)
        assert (connection.queued, stream.id) == ([stream], 0)
        connection.feed(h2.settings())
        assert connection.streams == [stream]
        _, head, body = sent(connection)
        assert head == (h2.HEADERS, h2.END_HEADERS, 1, b"\x82")
        assert body == (h2.DATA, h2.END_STREAM, 1, h2.message(b"ask"))

    @pytest.mark.parametrize(
        "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", h2.frame(h2.PING, payload=bytes(8)), h2.frame(h2.SETTINGS, 1)]
    )
    def test_what_does_not_begin_with_settings_is_no_server(self, greeting):
        connection = Connection()
        connection.feed(greeting)
        assert connection.failure[0] == PROTOCOL
        assert sent(connection)[-1].kind == h2.GOAWAY

    def test_windows_must_be_possible(self):
        for options in ({"window": 0}, {"window": 1 << 31}, {"connection_window": 65535}):
            with pytest.raises(ValueError, match="window must be"):
                Connection(**options)


class TestRequests:
    def test_long_headers_are_continued(self):
        connection = connected()
        connection.open(Stream(None, bytes(40_000), b"", None))
        kinds = [(frame.kind, frame.flags, len(frame.payload)) for frame in sent(connection)]
        assert kinds == [(1, 0, 16384), (9, 0, 16384), (9, h2.END_HEADERS, 7232), (0, h2.END_STREAM, 5)]

    def test_bodies_obey_both_windows_and_the_frame_size(self):
        connection = connected()
        connection.feed(h2.settings({h2.INITIAL_WINDOW_SIZE: 30_000}))
        streams = [Stream(None, b"\x82", bytes(50_000), None) for _ in range(3)]
        for stream in streams:
            connection.open(stream)
        got = {1: 0, 3: 0, 5: 0}
        for frame in sent(connection):
            if frame.kind == h2.DATA:
                got[frame.stream] += len(frame.payload)
                assert len(frame.payload) <= 16384
        assert got[1] == 30_000  # the stream's window
        assert sum(got.values()) == 65_535  # the connection's
        connection.feed(h2.window(0, 1 << 20) + h2.window(1, 30_000))
        for frame in sent(connection):
            got[frame.stream] += len(frame.payload)
        assert got == {1: 50_005, 3: 30_000, 5: 30_000}
        # A larger initial window counts for streams that are open.
        connection.feed(h2.settings({h2.INITIAL_WINDOW_SIZE: 60_000}))
        frames = [frame for frame in sent(connection) if frame.kind == h2.DATA]
        assert {frame.stream for frame in frames if frame.flags & h2.END_STREAM} == {3, 5}

    def test_a_shrunk_window_may_be_overdrawn(self):
        connection = connected()
        connection.feed(h2.settings({h2.INITIAL_WINDOW_SIZE: 1000}))
        connection.open(Stream(None, b"\x82", bytes(3000), None))
        connection.output()
        connection.feed(h2.settings({h2.INITIAL_WINDOW_SIZE: 0}) + h2.window(1, 500))
        assert [frame.kind for frame in sent(connection)] == [h2.SETTINGS]  # 1000 to pay back, 500 given
        connection.feed(h2.window(1, 501))
        assert [len(frame.payload) for frame in sent(connection)] == [1]

    def test_larger_frames_are_used_where_allowed(self):
        connection = connected()
        connection.feed(h2.settings({h2.MAX_FRAME_SIZE: 65536}))
        connection.open(Stream(None, b"\x82", bytes(40_000), None))
        assert [len(frame.payload) for frame in sent(connection) if frame.kind == h2.DATA] == [40_005]

    @pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 300_000])
    def test_a_large_request_is_whole_and_in_frames_of_bounded_size(self, size):
        connection = connected()
        connection.feed(h2.settings({h2.MAX_FRAME_SIZE: 1 << 23, h2.INITIAL_WINDOW_SIZE: 1 << 30}))
        connection.feed(h2.window(0, 1 << 30))
        body = random.Random(size).randbytes(size)
        connection.open(Stream(None, b"\x82", body, None))
        frames = []
        while more := [frame for frame in sent(connection) if frame.kind == h2.DATA]:
            frames += more
            # A peer that asks while much is to be sent is no attacker.
            connection.feed(h2.frame(h2.PING, payload=bytes(8)))
        assert b"".join(frame.payload for frame in frames) == h2.message(body)
        assert max(len(frame.payload) for frame in frames) <= 65_536
        assert [frame.flags & h2.END_STREAM for frame in frames[-2:]] == [0, h2.END_STREAM]
        assert connection.failure is None

    def test_a_request_that_is_dropped_half_way_is_sent_no_further(self):
        connection = connected()
        stream = Stream(None, b"\x82", bytes(300_000), None)
        connection.open(stream)
        sent(connection)
        connection.drop(stream)
        connection.feed(h2.window(0, 1 << 20))
        assert [frame.kind for frame in sent(connection)] == [h2.RST_STREAM]

    def test_sending_gives_way_although_the_socket_takes_more(self):
        connection = connected()
        connection.feed(h2.settings({h2.INITIAL_WINDOW_SIZE: 1 << 30}) + h2.window(0, 1 << 30))
        connection.open(Stream(None, b"\x82", bytes(1 << 20), None))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for one in (ours, theirs):
                one.setblocking(False)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            turns, got = 0, 0
            done = False
            while not done:
                done = connection.send(ours.fileno())
                turns += 1
                before = got
                while True:
                    try:
                        got += len(theirs.recv(1 << 20))
                    except BlockingIOError:
                        break
                assert got - before < 300_000
        assert turns > 3
        assert got > 1 << 20

    def test_streams_beyond_the_peers_limit_wait_in_order(self):
        connection = connected()
        connection.feed(h2.settings({h2.MAX_CONCURRENT_STREAMS: 2}))
        streams = [Stream(number, b"\x82", b"", None) for number in range(4)]
        for stream in streams:
            connection.open(stream)
        assert [stream.id for stream in streams] == [1, 3, 0, 0]
        connection.drop(streams[0])
        assert [stream.id for stream in streams] == [1, 3, 5, 0]
        connection.drop(streams[3])
        connection.drop(streams[1])
        assert connection.queued == []
        assert connection.streams == [streams[2]]
        connection.feed(h2.settings({h2.MAX_CONCURRENT_STREAMS: 0}))
        connection.open(late := Stream(None, b"\x82", b"", None))
        connection.drop(streams[2])
        assert connection.queued == [late]
        connection.feed(h2.settings({h2.MAX_CONCURRENT_STREAMS: 1}))
        assert connection.streams == [late]

    def test_ids_run_out(self):
        connection = connected(first_id=0x7FFFFFFF)
        first, second = Stream(None, b"\x82", b"", None), Stream(None, b"\x82", b"", None)
        connection.open(first)
        connection.open(second)
        assert (first.id, second.id, connection.exhausted) == (0x7FFFFFFF, 0, True)

    def test_a_stream_is_opened_once(self):
        connection = connected()
        stream = Stream(None, b"\x82", b"", None)
        connection.open(stream)
        with pytest.raises(ValueError, match="once"):
            connection.open(stream)
        connection.drop(stream)
        with pytest.raises(ValueError, match="once"):
            connection.open(stream)

    def test_a_foreign_stream_is_left_alone(self):
        here, there = connected(), connected()
        [stream] = opened(there)
        here.drop(stream)
        assert there.streams == [stream]
        assert sent(here) == []


class TestHeaders:
    def test_fragments_and_padding_and_priority(self):
        connection = connected()
        stream, _ = opened(connection, 2)
        block = h2.block(h2.ANSWER)
        flags = h2.PADDED | h2.WITH_PRIORITY
        connection.feed(h2.frame(h2.HEADERS, flags, 1, b"\x02" + bytes(5) + block[:1] + bytes(2)))
        assert connection.take_headers() == []
        connection.feed(h2.frame(h2.CONTINUATION, 0, 1, block[1:4]) + h2.frame(h2.CONTINUATION, 0, 1))
        connection.feed(h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, block[4:]))
        assert connection.take_headers() == [(stream, block, False)]

    @pytest.mark.parametrize(
        "between",
        [h2.data(1, b""), h2.headers(3), h2.frame(h2.PING, payload=bytes(8)), h2.frame(9, 4, 3), h2.frame(77)],
    )
    def test_a_header_block_is_not_interrupted(self, between):
        connection = connected()
        opened(connection, 2)
        connection.feed(h2.frame(h2.HEADERS, 0, 1, b"\x88") + between)
        assert connection.failure == (PROTOCOL, "a header block was interrupted")

    def test_an_endless_header_block(self):
        for size in (0, 10_000):
            connection = connected()
            opened(connection)
            connection.feed(h2.frame(h2.HEADERS, 0, 1))
            for _ in range(40_000):
                connection.feed(h2.frame(h2.CONTINUATION, 0, 1, bytes(size)))
                if connection.failure:
                    break
            assert connection.failure[0] == CALM


class TestMistakesOfThePeer:
    @pytest.mark.parametrize(
        ("wire", "code"),
        [
            (h2.frame(h2.DATA, stream=1, payload=bytes(16385)), FRAME_SIZE),
            (b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", FRAME_SIZE),
            (h2.data(0, b""), PROTOCOL),
            (h2.data(2, b""), PROTOCOL),
            (h2.data(99, b""), PROTOCOL),
            (h2.headers(0), PROTOCOL),
            (h2.headers(4), PROTOCOL),
            (h2.headers(99), PROTOCOL),
            (h2.frame(h2.HEADERS, 0x2C, 1, b"\x09\0\0\0\0\0"), PROTOCOL),
            (h2.frame(h2.HEADERS, 0x0C, 1), PROTOCOL),
            (h2.frame(h2.PRIORITY, stream=1, payload=bytes(4)), FRAME_SIZE),
            (h2.reset(0, 0), PROTOCOL),
            (h2.reset(99, 0), PROTOCOL),
            (h2.frame(h2.RST_STREAM, stream=1, payload=bytes(3)), FRAME_SIZE),
            (h2.frame(h2.SETTINGS, stream=1), PROTOCOL),
            (h2.frame(h2.SETTINGS, payload=bytes(5)), FRAME_SIZE),
            (h2.frame(h2.SETTINGS, h2.ACK, payload=bytes(6)), FRAME_SIZE),
            (h2.settings({2: 1}), PROTOCOL),
            (h2.settings({h2.INITIAL_WINDOW_SIZE: 1 << 31}), FLOW_CONTROL),
            (h2.settings({h2.MAX_FRAME_SIZE: 16383}), PROTOCOL),
            (h2.settings({h2.MAX_FRAME_SIZE: 1 << 24}), PROTOCOL),
            (h2.window(1, 1 << 30) + h2.settings({h2.INITIAL_WINDOW_SIZE: 0x7FFFFFFF}), FLOW_CONTROL),
            (h2.frame(h2.PUSH_PROMISE, 4, 1, bytes(4)), PROTOCOL),
            (h2.frame(h2.PING, payload=bytes(7)), FRAME_SIZE),
            (h2.frame(h2.PING, stream=1, payload=bytes(8)), PROTOCOL),
            (h2.frame(h2.GOAWAY, payload=bytes(7)), FRAME_SIZE),
            (h2.frame(h2.GOAWAY, stream=1, payload=bytes(8)), PROTOCOL),
            (h2.window(99, 1), PROTOCOL),
            (h2.frame(h2.WINDOW_UPDATE, payload=bytes(5)), FRAME_SIZE),
            (h2.frame(h2.CONTINUATION, 4, 1), PROTOCOL),
        ],
        ids=range(30),
    )
    def test_end_the_connection_with_goaway(self, wire, code):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(b"one")) + wire + h2.data(1, h2.message(b"ignored")))
        assert connection.failure[0] == code
        last = sent(connection)[-1]
        assert (last.kind, last.payload) == (h2.GOAWAY, bytes(4) + code.to_bytes(4, "big"))
        assert connection.take(stream) == [b"one"]

    def test_unknown_frames_and_priorities_are_ignored(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.frame(77, 255, 1, bytes(30)) + h2.frame(h2.PRIORITY, stream=99, payload=bytes(5)))
        connection.feed(h2.data(1, h2.message(b"one")))
        assert connection.take(stream) == [b"one"]
        assert connection.failure is None

    def test_pings_are_answered_and_counted(self):
        connection = connected()
        connection.feed(h2.frame(h2.PING, payload=b"abcdefgh"))
        assert sent(connection) == [(h2.PING, h2.ACK, 0, b"abcdefgh")]
        connection.ping()
        [ping] = sent(connection)
        assert (ping.kind, ping.flags) == (h2.PING, 0)
        connection.feed(h2.frame(h2.PING, h2.ACK, payload=ping.payload))
        assert connection.pongs == 1

    def test_a_peer_that_asks_and_does_not_listen(self):
        connection = connected()
        pings = h2.frame(h2.PING, payload=bytes(8)) * 10_000
        for _ in range(40):
            connection.feed(pings)
        assert connection.failure[0] == CALM


class TestFuzz:
    @settings(max_examples=300)
    @given(st.binary(max_size=200))
    def test_any_bytes(self, wire):
        connection = connected()
        opened(connection, 2)
        connection.feed(wire)
        connection.take_headers()
        connection.take_ready()
        h2.parse(connection.output())

    @settings(max_examples=300)
    @given(
        st.lists(
            st.tuples(
                st.integers(0, 11), st.integers(0, 255), st.sampled_from([0, 1, 1, 3, 3, 5, 7]), st.binary(max_size=40)
            ),
            max_size=25,
        ),
        st.randoms(use_true_random=False),
    )
    def test_any_frames_in_any_pieces_do_the_same(self, frames, rng):
        """Whole or byte by byte: same messages, same faults, same answers."""
        wire = b"".join(h2.frame(*each) for each in frames)

        def run(pieces):
            connection = connected()
            streams = opened(connection, 3, tokens=True)
            for piece in pieces:
                connection.feed(piece)
            items = [[repr(item) for item in connection.take(stream)] for stream in streams]
            blocks = [(stream and stream.id, block, end) for stream, block, end in connection.take_headers()]
            ready = sorted(stream.id for stream in connection.take_ready())
            ends = [(stream.closed, stream.error, stream.cut) for stream in streams]
            return items, blocks, ready, ends, connection.failure, connection.goaway, connection.output()

        cuts = sorted(rng.sample(range(len(wire) + 1), min(len(wire), 8)))
        assert run([wire]) == run([bytes((byte,)) for byte in wire])
        assert run([wire]) == run([wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)])

    def test_streams_come_and_go_in_any_order(self):
        rng = random.Random(7)
        connection = connected()
        running: dict[int, Stream] = {}
        for _ in range(5000):
            if len(running) < 300 and rng.random() < 0.55:
                [stream] = opened(connection)
                running[stream.id] = stream
            elif running:
                number = rng.choice(list(running))
                connection.feed(h2.data(number, h2.message(b"%d" % number)))
                assert connection.take_ready() == [running[number]]
                assert connection.take(running[number]) == [b"%d" % number]
                if rng.random() < 0.7:
                    connection.drop(running.pop(number))
            assert len(connection.streams) == len(running)


class TestSockets:
    @pytest.fixture
    def pair(self):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        with ours, theirs:
            yield ours, theirs

    def test_bytes_come_from_a_socket(self, pair):
        ours, theirs = pair
        connection = Connection()
        assert connection.receive(ours.fileno()) == -1
        theirs.send(h2.settings())
        assert connection.receive(ours.fileno()) == 9
        assert connection.settled
        theirs.close()
        assert connection.receive(ours.fileno()) == 0

    def test_bytes_go_to_a_socket_until_it_is_full(self, pair):
        ours, theirs = pair
        connection = connected()
        connection.feed(h2.window(0, 0x7FFF0000) + h2.settings({h2.INITIAL_WINDOW_SIZE: 0x7FFFFFFF}))
        stream = Stream(None, b"\x82", bytes(4 << 20), None)
        connection.open(stream)
        got, full = b"", 0
        while not connection.send(ours.fileno()):
            full += 1
            assert connection.pending
            got += theirs.recv(1 << 20)
        assert full > 0
        assert not connection.pending
        while len(got) < (4 << 20):
            got += theirs.recv(1 << 20)
        body = b"".join(frame.payload for frame in h2.parse(got) if frame.kind == h2.DATA)
        assert body == h2.message(bytes(4 << 20))

    def test_a_broken_socket_raises(self, pair):
        ours, theirs = pair
        theirs.close()
        connection = Connection()
        with pytest.raises(OSError, match="sending failed"):
            connection.send(ours.fileno())
        with pytest.raises(OSError, match="receiving failed"):
            connection.receive(-1)
