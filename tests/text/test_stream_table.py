"""Rows: decoding, special tokens, ends, stops, logprobs, and the two ways out."""

import codecs
import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.stream_table import StreamTable
from smg.core.batch import TokenLogprobs
from smg.core.stream import ByteTemplate, Counter, Marker, RowOutput, RowSpec
from smg.text.stream_table import PythonStreamTable
from smg.text.tokenizer import Tokenizer
from tests.text.makers import byte_level_json, metaspace_json, write_model

EOS = 0
THINK = 1


class Table:
    """A decoder made of the tokens of a test; 0 is EOS, 1 is ``<think>``, both special."""

    def __init__(self, *tokens: str | bytes) -> None:
        given = [token.encode() if isinstance(token, str) else token for token in tokens]
        self.tokens = [b"<eos>", b"<think>", *given]
        self.size = len(self.tokens)

    def token_bytes(self, token: int) -> bytes:
        return self.tokens[token]

    def first_bytes(self, token: int) -> bytes:
        return self.tokens[token].removeprefix(b" ")

    def is_special(self, token: int) -> bool:
        return token < 2

    @property
    def ids(self) -> list[int]:
        return list(range(2, self.size))


class Listener:
    """Tap and sink in one."""

    def __init__(self) -> None:
        self.outputs = []
        self.chunks = []

    def on_output(self, row, output):
        self.outputs.append(output)

    def write(self, data):
        self.chunks.append(data)
        return True

    async def drain(self):
        return None

    @property
    def texts(self):
        return [output.text for output in self.outputs if output.text]


SPEC = RowSpec(end_ids=frozenset({EOS}), eos_ids=frozenset({EOS}))


def spec(**fields) -> RowSpec:
    return RowSpec(**({"end_ids": frozenset({EOS}), "eos_ids": frozenset({EOS})} | fields))


def opened(decoder, row_spec=SPEC):
    table, listener = PythonStreamTable(), Listener()
    return table, listener, table.open(row_spec, decoder, listener)


def one_by_one(decoder, row_spec=SPEC, ids=None):
    """Feed the decoder's tokens singly, then finish."""
    table, listener, row = opened(decoder, row_spec)
    for token in decoder.ids if ids is None else ids:
        table.feed(row, [token])
    table.finish(row)
    return table, listener, row


def test_TX_01_half_an_emoji_waits_for_the_other_half():
    table, listener, row = one_by_one(Table("Hi ", b"\xf0\x9f", b"\x98\x80", "!"))
    assert listener.texts == ["Hi ", "😀", "!"]
    assert table.text(row) == "Hi 😀!"


def test_TX_02_invalid_bytes_do_not_hold_anything_up():
    table, listener, row = one_by_one(Table(b"\xff", "a", "b", b"\xe4\xbd", "c"))
    assert listener.texts == ["\ufffd", "a", "b", "\ufffdc"]
    assert table.text(row) == "\ufffdab\ufffdc"


@pytest.mark.parametrize("end", ["eos", "engine"])
def test_TX_02_FIX_5_an_unfinished_character_is_flushed_at_the_end(end):
    decoder = Table("a", b"\xe4\xbd")
    table, _, row = one_by_one(decoder, ids=[2, 3, *([EOS] if end == "eos" else [])])
    assert table.text(row) == "a\ufffd"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    texts = {"byte_level": byte_level_json(), "legacy": metaspace_json("legacy"), "first": metaspace_json("first")}
    return [Tokenizer(write_model(base / name, text)) for name, text in texts.items()]


@given(data=st.data())
def test_TX_03_streamed_equals_one_shot(tokenizers, data):
    tokenizer = data.draw(st.sampled_from(tokenizers))
    batches = data.draw(st.lists(st.lists(st.integers(0, tokenizer.size - 1), max_size=4), max_size=8))
    skip = data.draw(st.booleans())
    table, _, row = opened(tokenizer.decoder, RowSpec(skip_special_tokens=skip))
    for batch in batches:
        assert table.feed(row, batch)
    table.finish(row)
    ids = [token for batch in batches for token in batch]
    assert table.text(row) == tokenizer.decode(ids, skip_special_tokens=skip)
    assert list(table.ids(row)) == ids


@pytest.mark.parametrize("make", [PythonStreamTable, partial(StreamTable, RowOutput)], ids=["plain", "native"])
@given(data=st.data())
def test_TX_03_every_prefix_is_the_one_shot_decode_of_its_ids(tokenizers, make, data):
    tokenizer = data.draw(st.sampled_from(tokenizers))
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
    skip = data.draw(st.booleans())
    table = make()
    row = table.open(RowSpec(skip_special_tokens=skip), tokenizer.decoder, Listener())
    for count, token in enumerate(ids, 1):
        table.feed(row, [token])
        whole = tokenizer.decode(ids[:count], skip_special_tokens=skip)
        # Only a character that is not whole yet may be missing.
        assert whole in (table.text(row), table.text(row) + "\ufffd")
    table.finish(row)
    assert table.text(row) == tokenizer.decode(ids, skip_special_tokens=skip)


def test_TX_04_the_stop_string_and_what_follows_are_never_sent():
    decoder = Table("go S", "TO", "P now", " never")
    table, listener, row = one_by_one(decoder, spec(stop_strings=("STOP",)))
    assert table.text(row) == "go "
    last = listener.outputs[-1]
    assert (last.stopped, last.matched) == (True, "STOP")
    assert list(table.ids(row)) == [2, 3, 4]
    assert table.feed(row, [5]) is False


@pytest.mark.parametrize(("chunks", "eos"), [(("a #", "# b"), True), (("end #",), True), (("end ##",), False)])
def test_TX_05_held_text_leaves_before_the_end(chunks, eos):
    decoder = Table(*chunks)
    table, listener, row = one_by_one(decoder, spec(stop_strings=("###",)), [*decoder.ids, *([EOS] if eos else [])])
    assert table.text(row) == "".join(chunks)
    assert (listener.outputs[-1].stopped, listener.outputs[-1].matched) == (eos, None)


def test_TX_06_every_token_is_sent_at_once_and_nothing_empty_is_written():
    decoder = Table("I", " am", " here", "", b"\xf0\x9f", b"\x98\x80")
    table, listener, row = opened(decoder, spec(stop_strings=("<|a-very-long-stop-marker-of-40-characters|>",)))
    table.direct(row, listener, ByteTemplate((b"[", b"]"), ("text",)), Counter())
    for token in decoder.ids:
        table.feed(row, [token])
    assert listener.chunks == [b"[I]", b"[ am]", b"[ here]", "[😀]".encode()]


@given(
    st.lists(st.binary(max_size=3), max_size=10),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
    st.randoms(use_true_random=False),
)
def test_batches_do_not_matter(tokens, stops, generator):
    decoder = Table(*tokens)
    row_spec = spec(stop_strings=tuple(stops))
    single, _, row = one_by_one(decoder, row_spec)
    table, _, other = opened(decoder, row_spec)
    ids = decoder.ids
    while ids:
        size = generator.randint(1, 4)
        table.feed(other, ids[:size])
        ids = ids[size:]
    table.finish(other)
    assert table.text(other) == single.text(row)
    assert list(table.ids(other)) == list(single.ids(row))


def test_special_tokens_are_skipped_unless_asked_for_or_a_marker():
    decoder = Table("x")
    ids = [THINK, 2]
    assert one_by_one(decoder, ids=ids)[0].text(0) == "x"
    assert one_by_one(decoder, spec(skip_special_tokens=False), ids)[0].text(0) == "<think>x"
    assert one_by_one(decoder, spec(markers=(Marker("<think>", THINK),)), ids)[0].text(0) == "<think>x"


def test_the_first_token_loses_its_space_unless_the_text_goes_on():
    decoder = Table(" a", " b")
    assert one_by_one(decoder)[0].text(0) == "a b"
    assert one_by_one(decoder, spec(continues=True))[0].text(0) == " a b"


@pytest.mark.parametrize(
    ("fields", "token", "text", "matched"),
    [
        ({}, EOS, "x", None),
        ({"end_ids": frozenset({EOS, THINK})}, THINK, "x", THINK),
        ({"stop_visible": True}, EOS, "x<eos>", None),
        ({"end_ids": frozenset({THINK}), "stop_visible": True}, THINK, "x<think>", THINK),
        ({"end_ids": frozenset()}, EOS, "xy", None),
    ],
)
def test_end_ids(fields, token, text, matched):
    decoder = Table("x", "y")
    table, listener, row = opened(decoder, spec(**fields))
    running = table.feed(row, [2, token, 3])
    assert table.text(row) == text
    assert listener.outputs[-1].matched == matched
    assert running is (fields == {"end_ids": frozenset()})


def test_ids_after_the_end_are_discarded_and_have_no_logprobs():
    decoder = Table("x", "y")
    table, listener, row = opened(decoder)
    ids = [2, EOS, 3]
    assert table.feed(row, ids, [TokenLogprobs(token, -0.5) for token in ids]) is False
    assert list(table.ids(row)) == [2, EOS]
    assert list(listener.outputs[0].ids) == [2, EOS]
    assert [scored.token for scored in listener.outputs[0].logprobs] == [2]


def test_held_tokens_report_their_ids_and_logprobs_at_once():
    table, listener, row = opened(Table("S", "T"), spec(stop_strings=("STOP",)))
    table.feed(row, [2], [TokenLogprobs(2, -1.0)])
    assert (listener.outputs[0].text, list(listener.outputs[0].ids)) == ("", [2])
    assert listener.outputs[0].logprobs == [TokenLogprobs(2, -1.0)]


def test_a_visible_end_token_may_complete_a_stop_string():
    table, listener, row = opened(
        Table("x<"), spec(end_ids=frozenset({THINK}), stop_visible=True, stop_strings=("<<",))
    )
    table.feed(row, [2, THINK])
    assert table.text(row) == "x<<"
    assert listener.outputs[-1].matched == "<<"


def test_finish_tells_the_tap_once():
    table, listener, row = opened(Table("x"))
    table.finish(row)
    table.finish(row)
    assert [(output.text, output.ids, output.stopped) for output in listener.outputs] == [("", (), False)]
    assert table.feed(row, [2]) is False


def test_finish_after_a_stop_says_nothing_more():
    table, listener, row = opened(Table("x"))
    table.feed(row, [EOS])
    table.finish(row)
    assert len(listener.outputs) == 1


def test_direct_rows_write_numbered_escaped_events_and_the_tap_hears_the_end():
    decoder = Table('say "', 'hi"\n')
    table, listener, row = opened(decoder)
    counter = Counter(7)
    table.direct(row, listener, ByteTemplate((b'{"n":', b',"t":"', b'"}'), ("sequence", "text")), counter)
    table.feed(row, [2])
    table.feed(row, [3])
    assert listener.outputs == []
    table.feed(row, [EOS])
    assert [json.loads(chunk) for chunk in listener.chunks] == [{"n": 7, "t": 'say "'}, {"n": 8, "t": 'hi"\n'}]
    assert counter.value == 9
    assert [(output.text, output.stopped) for output in listener.outputs] == [("", True)]
    assert table.text(row) == 'say "hi"\n'


def test_a_feed_is_one_event_per_token_with_text_in_one_write():
    table, listener, row = opened(Table("a", "", b"\xf0\x9f", b"\x98\x80", "b#", "c"), spec(stop_strings=("##",)))
    table.direct(row, listener, ByteTemplate((b"[", b":", b"]"), ("sequence", "text")), Counter())
    table.feed(row, [2, 3, 4, 5, 6])
    table.feed(row, [7, EOS])
    assert listener.chunks == ["[0:a][1:😀][2:b]".encode(), b"[3:#c]"]


def test_held_text_of_a_row_that_goes_direct_leaves_through_the_sink():
    decoder = Table("a#", b"\xf0\x9f", b"\x98\x80")
    table, listener, row = opened(decoder, spec(stop_strings=("##",)))
    table.feed(row, [2, 3])
    table.direct(row, listener, ByteTemplate((b"", b"|"), ("text",)), Counter())
    table.feed(row, [4])
    table.finish(row)
    assert listener.texts == ["a"]
    assert b"".join(listener.chunks) == "#😀|".encode()


def test_rows_are_independent_and_handles_are_reused():
    decoder, listener = Table("x", "y"), Listener()
    table = PythonStreamTable()
    first, second = table.open(SPEC, decoder, listener), table.open(SPEC, decoder, listener)
    assert (first != second, len(table)) == (True, 2)
    table.feed(first, [2])
    table.feed(second, [3])
    assert (table.text(first), table.text(second)) == ("x", "y")
    table.close(first)
    third = table.open(SPEC, decoder, listener)
    assert (third, len(table), table.text(third)) == (first, 2, "")
    table.close(second)
    table.close(third)
    assert len(table) == 0


def test_nothing_is_reported_for_an_empty_batch():
    table, listener, row = opened(Table("x"))
    assert table.feed(row, []) is True
    assert listener.outputs == []


@given(st.lists(st.binary(max_size=4), max_size=12))
def test_utf8_is_decoded_as_a_whole_decode_would(tokens):
    table, _, row = one_by_one(Table("", *tokens))
    assert table.text(row) == codecs.decode(b"".join(tokens), "utf-8", "replace")
