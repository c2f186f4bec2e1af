"""gRPC calls on the native connection: messages, token ids, windows, ends (spec engine-contract 4.4)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg._native.grpc_stream import Stream
from smg._native.inlet import Tokens
from tests import h2_peer as h2
from tests.h2_native import CALM, CANCEL, FLOW_CONTROL, INTERNAL, PROTOCOL, REFUSED, WINDOW, connected, opened, sent


def chunk(ids, index=0, **counts) -> bytes:
    fields = pb.GenerateStreamChunk(token_ids=ids, index=index, **counts)
    return pb.GenerateResponse(chunk=fields).SerializeToString()


def complete(index=0) -> bytes:
    return pb.GenerateResponse(complete=pb.GenerateComplete(index=index, finish_reason="stop")).SerializeToString()


class TestMessages:
    def test_messages_come_whole_and_in_order(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(b"one") + h2.message(b"") + h2.message(b"tw")[:6]))
        assert connection.take_ready() == [stream]
        assert connection.take(stream) == [b"one", b""]
        assert stream.cut
        connection.feed(h2.data(1, b"w"))
        assert connection.take_ready() == [stream]
        assert connection.take(stream) == [b"tw"]
        assert (connection.take(stream), stream.messages, stream.cut) == ([], 3, False)

    def test_a_stream_with_half_a_message_is_not_ready(self):
        connection = connected()
        opened(connection)
        connection.feed(h2.data(1, h2.message(b"one")[:7]))
        assert connection.take_ready() == []

    def test_padding_is_dropped(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.frame(h2.DATA, h2.PADDED, 1, b"\x03" + h2.message(b"one") + bytes(3)))
        connection.feed(h2.frame(h2.DATA, h2.PADDED, 1, b"\x00" + h2.message(b"two")))
        connection.feed(h2.frame(h2.DATA, h2.PADDED, 1, b"\x05" + bytes(5)))
        assert connection.take(stream) == [b"one", b"two"]

    @pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05\x00\x00"])
    def test_more_padding_than_data(self, payload):
        connection = connected()
        opened(connection)
        connection.feed(h2.frame(h2.DATA, h2.PADDED, 1, payload))
        assert connection.failure[0] == PROTOCOL

    @pytest.mark.parametrize("flag", [1, 2, 255])
    def test_a_compressed_message_was_not_offered(self, flag):
        connection = connected()
        stream, other = opened(connection, 2)
        connection.feed(h2.data(1, h2.message(b"one", flag)) + h2.data(3, h2.message(b"two")))
        assert stream.error == (INTERNAL, "a compressed message, which was not offered")
        assert [(frame.kind, frame.stream, frame.word) for frame in sent(connection)] == [(h2.RST_STREAM, 1, INTERNAL)]
        assert connection.take(other) == [b"two"]
        assert connection.failure is None

    def test_a_message_beyond_the_limit(self):
        connection = connected()
        [stream] = opened(connection, largest=10)
        connection.feed(h2.data(1, h2.message(bytes(10)) + h2.message(bytes(11))[:5]))
        assert connection.take(stream) == [bytes(10)]
        assert stream.error == (INTERNAL, "a message beyond the size limit")

    def test_what_is_left_of_a_dropped_stream_can_be_taken(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(b"one"), end=True))
        connection.drop(stream)
        assert (connection.streams, stream.owner) == ([], None)
        assert connection.take(stream) == [b"one"]

    def test_unless_it_was_abandoned(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(b"one"), end=True))
        stream.abandon()
        assert connection.take(stream) == []

    @given(
        st.lists(st.binary(max_size=40) | st.integers(100, 3000).map(bytes), max_size=12),
        st.integers(1, 400),
        st.randoms(use_true_random=False),
    )
    def test_any_split_gives_the_same_messages(self, messages, frame_size, rng):
        connection = connected()
        [stream] = opened(connection)
        wire = h2.data(1, b"".join(map(h2.message, messages)), size=frame_size) + h2.trailers(1)
        got = []
        while wire:
            cut = rng.choice((1, 1, 2, 9, 10, 50, 500, len(wire)))
            connection.feed(wire[:cut])
            wire = wire[cut:]
            if rng.random() < 0.3:
                got += connection.take(stream)
        assert got + connection.take(stream) == messages
        assert stream.closed
        assert not stream.cut


class TestTokens:
    def test_chunks_of_one_choice_become_one(self):
        connection = connected()
        [stream] = opened(connection, tokens=True)
        chunks = [
            chunk([1, 2], prompt_tokens=7),
            chunk([300000], prompt_tokens=7, cached_tokens=4),
            chunk([], prompt_tokens=8, cached_tokens=2),
        ]
        connection.feed(h2.data(1, b"".join(map(h2.message, [*chunks, complete()]))))
        tokens, last = connection.take(stream)
        assert isinstance(tokens, Tokens)
        assert (tokens.index, tokens.ids, tokens.prompt_tokens, tokens.cached_tokens) == (0, [1, 2, 300000], 8, 4)
        assert last == complete()
        assert connection.take(stream) == []

    def test_interleaved_choices_have_one_each_up_to_a_message(self):
        connection = connected()
        [stream] = opened(connection, tokens=True)
        order = [chunk([1], 0), chunk([2], 1), chunk([3], 0), complete(0), chunk([4], 1), chunk([5], 1)]
        connection.feed(h2.data(1, b"".join(map(h2.message, order))))
        got = [(item.index, item.ids) if isinstance(item, Tokens) else item for item in connection.take(stream)]
        assert got == [(0, [1, 3]), (1, [2]), complete(0), (1, [4, 5])]

    def test_what_is_no_plain_chunk_comes_as_it_is(self):
        connection = connected()
        [stream] = opened(connection, tokens=True)
        found = pb.GenerateStreamChunk(token_ids=[1], output_logprobs=pb.OutputLogProbs(token_ids=[1]))
        odd = [pb.GenerateResponse(chunk=found).SerializeToString(), b"", b"\xff\xff", b"\x0a\x05\x08"]
        connection.feed(h2.data(1, b"".join(map(h2.message, odd))))
        assert connection.take(stream) == odd

    @given(
        st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2**32 - 1), max_size=5)), max_size=30),
        st.lists(st.integers(0, 29), max_size=4),
        st.randoms(use_true_random=False),
    )
    def test_every_choice_keeps_its_ids_in_order(self, chunks, stops, rng):
        connection = connected()
        [stream] = opened(connection, tokens=True)
        expected: dict[int, list[int]] = {}
        wire = b""
        for place, (index, ids) in enumerate(chunks):
            expected.setdefault(index, []).extend(ids)
            wire += h2.message(chunk(ids, index))
            if place in stops:
                wire += h2.message(complete(9))
        wire = h2.data(1, wire, size=rng.randint(1, 60))
        got: dict[int, list[int]] = {}
        while wire:
            cut = rng.randint(1, 80)
            connection.feed(wire[:cut])
            wire = wire[cut:]
            for item in connection.take(stream) if rng.random() < 0.5 or not wire else ():
                if isinstance(item, Tokens):
                    got.setdefault(item.index, []).extend(item.ids)
        assert got == expected


class TestFlowControl:
    def test_a_streams_window_goes_back_when_its_reader_comes_again(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(bytes(4091)) * 48))
        assert sent(connection) == []
        assert connection.take(stream) == [bytes(4091)] * 48
        assert sent(connection) == []  # taken, but perhaps not passed on yet
        assert connection.take(stream) == []
        assert [(frame.stream, frame.word) for frame in sent(connection)] == [(1, WINDOW * 3 // 4)]

    def test_small_amounts_go_back_together(self):
        connection = connected()
        [stream] = opened(connection)
        returned = 0
        for _ in range(100):
            connection.feed(h2.data(1, h2.message(bytes(5000))))
            connection.take(stream)
            connection.take(stream)
            for frame in sent(connection):
                assert frame.word >= WINDOW // 2
                returned += frame.word
        assert returned >= 100 * 5005 - WINDOW // 2

    def test_a_stalled_reader_keeps_its_window_and_no_others(self):
        connection = connected()
        stalled, other = opened(connection, 2)
        part = h2.message(bytes(16_000))
        for _ in range(16):
            connection.feed(h2.data(1, part))
        assert sent(connection) == []
        for _ in range(64):
            connection.feed(h2.data(3, part))
            assert len(connection.take(other)) == 1
        updates = [frame for frame in sent(connection) if frame.kind == h2.WINDOW_UPDATE]
        assert {frame.stream for frame in updates} == {3}
        assert len(connection.take(stalled)) == 16

    def test_a_message_may_be_larger_than_the_window(self):
        connection = connected()
        [stream] = opened(connection)
        big = random.Random(1).randbytes(5 << 20)
        wire, allowed = h2.message(big), WINDOW
        while wire:
            piece, wire = wire[: min(16384, allowed)], wire[min(16384, allowed) :]
            assert piece, "the window was not given back"
            allowed -= len(piece)
            connection.feed(h2.data(1, piece))
            allowed += sum(frame.word for frame in sent(connection) if frame.stream == 1)
        assert connection.take(stream) == [big]

    def test_the_connections_window_goes_back_at_once(self):
        connection = connected(connection_window=200_000)
        opened(connection)
        for _ in range(6):
            connection.feed(h2.data(1, bytes(16384)))
        assert sent(connection) == []
        connection.feed(h2.data(1, h2.message(b"")))  # zeros are empty messages
        connection.feed(h2.data(1, bytes(4000)))
        assert [(frame.stream, frame.word) for frame in sent(connection)] == [(0, 6 * 16384 + 5 + 4000)]

    def test_data_for_a_dropped_stream_counts_for_the_connection(self):
        connection = connected(connection_window=100_000)
        [stream] = opened(connection)
        connection.drop(stream)
        connection.output()
        for _ in range(4):
            connection.feed(h2.data(1, bytes(16384)))
        assert [(frame.stream, frame.word) for frame in sent(connection)] == [(0, 65536)]

    def test_a_peer_that_sends_more_than_a_streams_window(self):
        connection = connected()
        stream, other = opened(connection, 2)
        for _ in range(16):
            connection.feed(h2.data(1, h2.message(bytes(16384 - 5))))
        assert stream.error is None
        connection.feed(h2.data(1, b"\0") + h2.data(3, h2.message(b"fine")))
        assert stream.error[0] == FLOW_CONTROL
        assert connection.take(other) == [b"fine"]

    @pytest.mark.parametrize("stream", [0, 1])
    def test_windows_that_grow_too_large_or_not_at_all(self, stream):
        for increment, code in ((0x7FFFFFFF, FLOW_CONTROL), (0, PROTOCOL)):
            connection = connected()
            [opened_stream] = opened(connection)
            connection.feed(h2.window(stream, increment))
            failure = opened_stream.error if stream else connection.failure
            assert failure[0] == code


class TestEnds:
    def test_trailers_after_messages(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(b"one")) + h2.trailers(1))
        [(found, block, end)] = connection.take_headers()
        assert (found, block, end) == (stream, h2.block(h2.OK), True)
        assert (stream.closed, stream.error) == (True, None)
        connection.drop(stream)
        assert sent(connection) == []  # both sides had finished

    def test_an_answer_before_the_request_is_sent_resets_it(self):
        connection = connected()
        stream = Stream(None, b"\x82", bytes(200_000), None)
        connection.open(stream)
        connection.output()
        connection.feed(h2.headers(1, end=True))
        connection.drop(stream)
        assert [(frame.kind, frame.word) for frame in sent(connection)] == [(h2.RST_STREAM, CANCEL)]
        connection.feed(h2.window(0, 1 << 20))
        assert sent(connection) == []

    def test_end_without_trailers(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.data(1, h2.message(b"one"), end=True))
        assert connection.take_ready() == [stream]
        assert (stream.closed, stream.error) == (True, None)

    def test_the_peer_resets(self):
        connection = connected()
        stream, other = opened(connection, 2)
        connection.feed(h2.data(1, h2.message(b"one")) + h2.reset(1, REFUSED) + h2.data(1, h2.message(b"late")))
        assert connection.take_ready() == [stream]
        assert stream.error == (REFUSED, "the peer reset the stream")
        assert connection.take(stream) == [b"one"]
        connection.drop(stream)
        assert sent(connection) == []
        assert not other.closed

    def test_a_reset_after_the_end_changes_nothing(self):
        connection = connected()
        [stream] = opened(connection)
        connection.feed(h2.trailers(1) + h2.reset(1, 0))
        assert stream.error is None

    def test_dropping_resets_once(self):
        connection = connected()
        [stream] = opened(connection)
        connection.drop(stream)
        connection.drop(stream)
        assert [(frame.kind, frame.stream, frame.word) for frame in sent(connection)] == [(h2.RST_STREAM, 1, CANCEL)]
        # The peer may not know yet: headers still count for the compression state.
        connection.feed(h2.data(1, h2.message(b"late")) + h2.trailers(1))
        assert connection.take_headers() == [(None, h2.block(h2.OK), True)]
        assert connection.take_ready() == []
        assert connection.failure is None

    def test_data_before_headers(self):
        connection = connected()
        stream = Stream(None, b"\x82", b"", None)
        connection.open(stream)
        connection.feed(h2.data(1, h2.message(b"one")))
        assert stream.error == (PROTOCOL, "data before headers")

    def test_goaway_is_kept_and_nothing_more_is_opened(self):
        connection = connected()
        connection.feed(h2.goaway(0x7FFFFFFF))
        assert connection.goaway == (0x7FFFFFFF, 0, "")
        connection.open(late := Stream(None, b"\x82", b"", None))
        assert connection.queued == [late]
        connection.feed(h2.goaway(5, CALM, b"too_many_pings"))
        connection.feed(h2.goaway(9, CALM, b"\xff" * 1000))
        assert connection.goaway == (5, CALM, "\ufffd" * 256)  # and it cannot give streams back
