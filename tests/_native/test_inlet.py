"""What is received natively waits for Python as Tokens and bytes, in order (DESIGN 6, the source of the pump).

That an inlet finds no memory cannot be brought about here: messages are far smaller than what the system would refuse.
"""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto import sglang_scheduler_pb2, tokenspeed_scheduler_pb2

from smg._native.inlet import Inlet, Intake, Tokens
from smg.engines.sglang.decode import SglangDecoder
from smg.engines.tokenspeed.decode import TokenSpeedDecoder
from smg.engines.vllm.decode import VllmDecoder
from tests._native.test_grpc_stream import chunk, complete


def ids_of(items: list[bytes | Tokens]) -> list[bytes | tuple[int, list[int]]]:
    return [(item.index, item.ids) if isinstance(item, Tokens) else item for item in items]


def sglang(ids: list[int], **counts: int) -> bytes:
    made = sglang_scheduler_pb2.GenerateStreamChunk(token_ids=ids, **counts)
    return sglang_scheduler_pb2.GenerateResponse(request_id="r", chunk=made).SerializeToString()


def tokenspeed(ids: list[int], version: str | None = None) -> bytes:
    made = tokenspeed_scheduler_pb2.GenerateStreamChunk(token_ids=ids, weight_version=version)
    return tokenspeed_scheduler_pb2.GenerateResponse(request_id="r", chunk=made).SerializeToString()


class TestIntake:
    def test_without_a_layout_every_message_stays_as_it_is(self):
        intake = Intake()
        messages = [chunk([1]), b"", b"anything"]
        assert [intake.push(message) for message in messages] == [True] * len(messages)
        assert intake.take() == messages
        assert intake.take() == []

    def test_plain_chunks_are_tokens_up_to_the_next_message(self):
        intake = Intake(VllmDecoder.layout)
        messages = [chunk([1]), chunk([2], index=1), chunk([3]), complete(0), chunk([4], index=1)]
        assert [intake.push(message) for message in messages] == [True] * len(messages), "nobody else takes them"
        assert ids_of(intake.take()) == [(0, [1, 3]), (1, [2]), complete(0), (1, [4])]

    def test_counts_of_joined_chunks_are_of_the_prompt_the_last_and_others_the_highest(self):
        intake = Intake(SglangDecoder.layout)
        intake.push(sglang([1], prompt_tokens=7, cached_tokens=4, reasoning_tokens=1))
        intake.push(sglang([2], prompt_tokens=8, cached_tokens=2, reasoning_tokens=3))
        intake.push(sglang([3], prompt_tokens=8))
        [tokens] = intake.take()
        assert repr(tokens) == "Tokens(0, [1, 2, 3], 8, 4, 3)"

    @pytest.mark.parametrize("size", [16 << 10, (16 << 10) + 1, 5 << 20])
    def test_large_messages_are_kept_whole(self, size):
        intake = Intake(VllmDecoder.layout)
        message = bytes([255]) * size
        assert intake.push(message)
        assert intake.push(chunk(list(range(size // 2))))
        kept, tokens = intake.take()
        assert kept == message
        assert tokens.ids == list(range(size // 2))

    def test_while_a_large_message_is_read_other_threads_run(self):
        intake = Intake(VllmDecoder.layout)
        message = chunk([1] * (4 << 20))
        ran = threading.Event()
        over = threading.Event()

        def run() -> None:
            while not over.is_set():
                ran.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            ran.wait(5)
            ran.clear()
            intake.push(message)
            assert ran.wait(5)
        finally:
            over.set()
            thread.join()
        [tokens] = intake.take()
        assert len(tokens.ids) == 4 << 20

    def test_what_was_abandoned_is_gone_and_more_may_come(self):
        intake = Intake(VllmDecoder.layout)
        intake.push(chunk([1]))
        intake.push(complete())
        intake.abandon()
        assert intake.take() == []
        intake.push(chunk([2]))
        assert ids_of(intake.take()) == [(0, [2])]

    @pytest.mark.parametrize("message", [None, "text", bytearray(b"x"), 3])
    def test_only_bytes_are_messages(self, message):
        with pytest.raises(TypeError):
            Intake().push(message)

    def test_only_a_layout_is_one(self):
        for kind in (Inlet, Intake):
            with pytest.raises(TypeError):
                kind({"chunk": 1})

    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2**32 - 1), max_size=5)) | st.binary(max_size=20),
            max_size=30,
        ),
        st.randoms(use_true_random=False),
    )
    def test_nothing_is_lost_and_choices_keep_their_order(self, things, rng):
        """Against the plain model: a list of messages, and of each choice its ids between two of them."""
        intake = Intake(VllmDecoder.layout)
        expected: dict[int, list[int]] = {}
        got: dict[int, list[int]] = {}
        raw, kept = [], []
        for thing in things:
            if isinstance(thing, bytes):
                thing = complete(7) + thing
                raw.append(thing)
                intake.push(thing)
            else:
                expected.setdefault(thing[0], []).extend(thing[1])
                intake.push(chunk(thing[1], thing[0]))
            for item in intake.take() if rng.random() < 0.3 else ():
                kept.append(item)
        for item in [*kept, *intake.take()]:
            if isinstance(item, Tokens):
                got.setdefault(item.index, []).extend(item.ids)
        assert got == expected
        assert [item for item in [*kept] if isinstance(item, bytes)] == raw[: sum(isinstance(i, bytes) for i in kept)]


class TestLabels:
    """A text that a contract repeats in each chunk goes to the contract when it is new."""

    def test_only_a_chunk_with_another_label_than_the_last_is_left_to_the_contract(self):
        intake = Intake(TokenSpeedDecoder.layout)
        messages = [
            tokenspeed([1], "v1"),
            tokenspeed([2], "v1"),
            tokenspeed([3]),
            tokenspeed([4], "v1"),
            tokenspeed([5], "v2"),
            tokenspeed([6], "v2"),
            tokenspeed([7], "v1"),
        ]
        for message in messages:
            intake.push(message)
        assert ids_of(intake.take()) == [messages[0], (0, [2, 3, 4]), messages[4], (0, [6]), messages[6]]

    def test_it_is_remembered_from_one_take_to_the_next_and_when_what_waits_is_dropped(self):
        intake = Intake(TokenSpeedDecoder.layout)
        intake.push(tokenspeed([1], "v1"))
        assert len(intake.take()) == 1
        intake.push(tokenspeed([2], "v1"))
        intake.abandon()
        intake.push(tokenspeed([3], "v1"))
        assert ids_of(intake.take()) == [(0, [3])]

    def test_no_label_and_an_empty_one_are_no_news(self):
        intake = Intake(TokenSpeedDecoder.layout)
        intake.push(tokenspeed([1]))
        intake.push(tokenspeed([2], ""))
        assert ids_of(intake.take()) == [(0, [1, 2])]

    @given(st.lists(st.sampled_from([None, "", "v1", "v2", "v1.0", "ü"]), max_size=12))
    def test_the_contract_sees_each_change(self, versions):
        intake = Intake(TokenSpeedDecoder.layout)
        known, expected = "", []
        for version in versions:
            news = version is not None and version != known
            if news and version.isascii():
                known = version
            expected.append(news)
            intake.push(tokenspeed([1], version))
            [item] = intake.take()
            assert isinstance(item, bytes) == news
