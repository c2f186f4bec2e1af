"""An engine that floods the native connection, or never reads: it ends, with the right code and little memory.

RFC 9113, 10.5 names the attacks; an engine is trusted, but it may be broken.
"""

import resource

import pytest

from smg._native.grpc_stream import Stream
from tests import h2_peer as h2
from tests.h2_native import CALM, FLOW_CONTROL, connected, opened, sent

MIB = 1 << 20
# Frames that bring nothing: so many are always borne at once, and so many never.
BORNE, TOO_MANY = 5_000, 100_000


def peak() -> int:
    """The most memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def flood(connection, frames: bytes, times: int) -> int:
    """Send ``frames`` until they are refused, at most ``times``; returns how often. All answers are read."""
    for done in range(0, times, 100):
        connection.feed(frames * 100)
        connection.take_headers()
        connection.output()
        if connection.failure:
            return done + 100
    return times


FLOODS = {
    "pings": h2.frame(h2.PING, payload=bytes(8)),
    "answers to pings": h2.frame(h2.PING, h2.ACK, payload=bytes(8)),
    "empty settings": h2.settings(),
    "settings": h2.settings({h2.INITIAL_WINDOW_SIZE: 70_000}),
    "acknowledged settings": h2.frame(h2.SETTINGS, h2.ACK),
    "priorities": h2.frame(h2.PRIORITY, stream=1, payload=bytes(5)),
    "unknown frames": h2.frame(77, stream=1, payload=b"x"),
    "empty data": h2.data(1, b""),
    "data of nothing but padding": h2.frame(h2.DATA, h2.PADDED, 1, b"\3" + bytes(3)),
    "empty data for a stream that is over": h2.data(3, b""),
    "ends of a stream that is over": h2.data(3, b"", end=True),
    "headers for a stream that is over": h2.headers(3),
    "headers that announce others": h2.headers(1, ((":status", "103"),)),
    "resets of a stream that is over": h2.reset(3, 8),
    "windows": h2.window(0, 1),
    "windows of a stream that is over": h2.window(3, 1),
    "going away": h2.goaway(0x7FFFFFFF),
}


@pytest.fixture
def connection():
    """One on which stream 1 is open and stream 3 is over."""
    connection = connected()
    _, over = opened(connection, 2)
    connection.drop(over)
    connection.output()
    return connection


class TestFramesThatBringNothing:
    @pytest.mark.parametrize("wire", FLOODS.values(), ids=FLOODS)
    def test_without_end_they_end_the_connection(self, connection, wire):
        before = peak()
        assert BORNE < flood(connection, wire, TOO_MANY) < TOO_MANY
        assert connection.failure[0] == CALM
        [last] = [frame for frame in sent(connection) if frame.kind == h2.GOAWAY] or [None]
        assert last is None or last.payload[4:] == CALM.to_bytes(4, "big")
        assert peak() - before < 8 * MIB

    def test_goaway_tells_the_peer_why(self, connection):
        connection.feed(FLOODS["empty data"] * TOO_MANY)
        assert [(frame.kind, frame.payload[4:]) for frame in sent(connection)] == [(h2.GOAWAY, b"\0\0\0\x0b")]

    @pytest.mark.parametrize("wire", FLOODS.values(), ids=FLOODS)
    def test_a_few_thousand_do_no_harm(self, connection, wire):
        assert flood(connection, wire, BORNE) == BORNE
        assert connection.failure is None

    def test_settings_count_by_what_they_hold(self, connection):
        many = h2.frame(h2.SETTINGS, payload=h2.settings({h2.INITIAL_WINDOW_SIZE: 70_000})[9:] * 2000)
        assert flood(connection, many, 1000) <= 100
        assert connection.failure[0] == CALM

    def test_messages_between_them_show_that_the_peer_works(self, connection):
        """Servers measure the way with pings, and some send empty frames."""
        wire = FLOODS["pings"] + FLOODS["empty data"] + h2.data(1, h2.message(b"a")) * 2
        [stream] = connection.streams
        for _ in range(300):
            connection.feed(wire * 100)
            connection.output()
            assert connection.take(stream) == [b"a"] * 200
        assert connection.failure is None

    def test_windows_for_what_we_send_are_no_flood(self):
        connection = connected()
        connection.open(Stream(None, b"\x82", bytes(30 * MIB), None))
        got = 0
        while got < 30 * MIB:
            parts = [frame for frame in sent(connection) if frame.kind == h2.DATA]
            for part in parts:
                got += len(part.payload)
                # Of each frame in halves, for the stream and for the connection: 7,680 updates.
                half = len(part.payload) // 2
                for size in (half, len(part.payload) - half):
                    connection.feed(h2.window(0, size) + h2.window(1, size) if size else b"")
        assert connection.failure is None


class TestHeaders:
    @pytest.mark.parametrize("size", [0, 1, 16_384])
    def test_a_list_without_end(self, connection, size):
        before = peak()
        connection.feed(h2.frame(h2.HEADERS, 0, 1))
        assert flood(connection, h2.frame(h2.CONTINUATION, 0, 1, bytes(size)), TOO_MANY) < 30_000
        assert connection.failure[0] == CALM
        assert peak() - before < 16 * MIB


class TestWindows:
    @pytest.mark.parametrize("stream", [0, 1])
    def test_increments_add_up_to_too_much(self, connection, stream):
        # Their requests had eight bytes each.
        used = 16 if stream == 0 else 8
        connection.feed(h2.window(stream, 0x7FFFFFFF - 65_535 + used))
        assert connection.failure is None
        assert not connection.take_ready()
        connection.feed(h2.window(stream, 1))
        if stream == 0:
            assert connection.failure[0] == FLOW_CONTROL
        else:
            assert connection.failure is None
            assert [(frame.kind, frame.word) for frame in sent(connection)] == [(h2.RST_STREAM, FLOW_CONTROL)]

    def test_data_beyond_the_streams_window_resets_it_and_is_not_kept(self, connection):
        [stream] = connection.streams
        before = peak()
        # Nobody takes the messages, so nothing is given back.
        for _ in range(2000):
            connection.feed(h2.data(1, h2.message(bytes(16_379))))
        assert stream.error == (FLOW_CONTROL, "more data than the stream's window")
        assert sum(map(len, connection.take(stream))) <= 256 << 10
        assert peak() - before < 8 * MIB
        assert connection.failure is None

    def test_empty_messages_fill_the_window_too(self, connection):
        [stream] = connection.streams
        connection.feed(h2.data(1, h2.message(b"") * 100_000))
        assert stream.error[0] == FLOW_CONTROL
        assert len(connection.take(stream)) <= (256 << 10) // 5


class TestResets:
    def test_a_storm_of_resets_leaves_nothing(self):
        connection = connected()
        for _ in range(20):
            streams = opened(connection, 500)
            connection.feed(b"".join(h2.reset(stream.id, 7) for stream in streams))
            assert connection.take_ready() == streams
            for stream in streams:
                assert stream.error[0] == 7
                connection.drop(stream)
            # It has reset them, so we have nothing to add.
            assert sent(connection) == []
        assert connection.streams == connection.queued == []
        assert connection.failure is None


class TestPeersThatDoNotRead:
    def test_calls_that_come_and_go(self):
        connection = connected()
        before = peak()
        opens = 0
        while connection.failure is None and opens < TOO_MANY:
            stream = Stream(None, bytes(400), b"ask", None)
            connection.open(stream)
            connection.drop(stream)
            opens += 1
        assert connection.failure == (CALM, "the peer does not read")
        assert 9_000 < opens < 11_000
        assert peak() - before < 24 * MIB

    def test_a_long_request_is_no_backlog(self):
        connection = connected()
        connection.feed(h2.settings({h2.INITIAL_WINDOW_SIZE: 1 << 30}) + h2.window(0, 1 << 30))
        connection.open(Stream(None, b"\x82", bytes(20 * MIB), None))
        for _ in range(1000):
            assert connection.pending
            connection.feed(h2.frame(h2.PING, payload=bytes(8)))
        assert connection.failure is None
