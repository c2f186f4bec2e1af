"""Rule SPLIT for the decoding of TX-01 to TX-06: the same bytes, cut into tokens in every way that matters."""

import random
from collections.abc import Iterator

import pytest

from smg.core.stream import ByteTemplate, Counter, RowSpec
from tests._native.test_stream_table import Recorder, Vocabulary, both

LONG = "<|a-very-long-stop-marker-of-40-characters|>"
CASES = {
    "TX_01": ("Hi 😀!".encode(), (), "Hi 😀!", None),
    "TX_02": (b"\xffab\xe4\xbdc", (), "\ufffdab\ufffdc", None),
    "TX_02 cut off": (b"ab\xf0\x9f\x98", (), "ab\ufffd", None),
    "TX_02 surrogate": (b"a\xed\xa0\x80b", (), "a\ufffd\ufffd\ufffdb", None),
    "TX_03": (b"    .", (), "    .", None),
    "TX_04": (b"go STOP now", ("STOP",), "go ", "STOP"),
    "TX_04 in two scripts": ("é日 СТОП日 now".encode(), ("СТОП日", "日日"), "é日 ", "СТОП日"),
    "TX_05": (b"a ## b", ("###",), "a ## b", None),
    "TX_05 one held": (b"end #", ("###",), "end #", None),
    "TX_05 two held": (b"end ##", ("###",), "end ##", None),
    "TX_05 overlapping": (b"aab aaab aaaac", ("aaaa", "aabb"), "aab aaab ", "aaaa"),
    "TX_06": (b"I am here < <|a-very-long-stop-marker", (LONG,), "I am here < <|a-very-long-stop-marker", None),
}


def cuts(data: bytes) -> Iterator[list[bytes]]:
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    yield from ([data[:at], data[at:]] for at in range(1, len(data)))
    draw = random.Random(4)
    for _ in range(200):
        edges = sorted(draw.choices(range(len(data) + 1), k=draw.randint(0, 8)))
        yield [data[start:end] for start, end in zip([0, *edges], [*edges, len(data)], strict=True)]


@pytest.mark.parametrize("table", both())
@pytest.mark.parametrize("direct", [False, True], ids=["tapped", "direct"])
@pytest.mark.parametrize(("data", "stops", "text", "matched"), CASES.values(), ids=CASES)
def test_TX_01_to_TX_06_come_out_the_same_however_they_are_cut(table, direct, data, stops, text, matched):
    for tokens in cuts(data):
        seen = Recorder()
        row = table.open(RowSpec(stop_strings=stops), Vocabulary(tokens), seen)
        if direct:
            table.direct(row, seen, ByteTemplate((b"", b""), ("text",)), Counter())
        for token in range(len(tokens)):
            if not table.feed(row, [token]):
                break
        table.finish(row)
        last = seen.outputs[-1]
        shown = b"".join(seen.writes).decode() if direct else seen.text
        assert shown == text
        assert (table.text(row), last.stopped, last.matched) == (text, matched is not None, matched)
        table.close(row)
