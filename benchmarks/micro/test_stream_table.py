"""What one token costs in a row of the stream table: id to text, stop scan, event bytes."""

import pytest

from smg.core.stream import ByteTemplate, Counter, RowSpec
from smg.text.stream_table import PythonStreamTable

WORDS = [b" the", b" city", b" of", b" light", b"s", b",", b" \xf0\x9f", b"\x8e\x89"]
TOKENS = [token for _ in range(64) for token in range(len(WORDS))]
PIECES = (b'data: {"choices":[{"index":0,"delta":{"content":"', b'"},"finish_reason":null}]}\n\n')


class Decoder:
    """Eight tokens, one of them half a character."""

    size = len(WORDS)

    def token_bytes(self, token):
        return WORDS[token]

    def first_bytes(self, token):
        return WORDS[token]

    def is_special(self, token):
        return False


class Nowhere:
    """Sink and tap that only count."""

    def __init__(self):
        self.calls = 0

    def write(self, data):
        self.calls += 1
        return True

    async def drain(self):
        pass

    def on_output(self, row, output):
        self.calls += 1


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("stops", [(), ("\n\nUser:", "END")], ids=["free", "stops"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "tapped"])
def test_feed(benchmark, direct, stops, batch):
    table, decoder, out = PythonStreamTable(), Decoder(), Nowhere()
    chunks = [TOKENS[start : start + batch] for start in range(0, len(TOKENS), batch)]

    def stream():
        row = table.open(RowSpec(stop_strings=stops), decoder, out)
        if direct:
            table.direct(row, out, ByteTemplate(PIECES, ("text",)), Counter())
        for chunk in chunks:
            table.feed(row, chunk)
        table.finish(row)
        table.close(row)

    benchmark.extra_info["per_token"] = len(TOKENS)
    benchmark(stream)
    assert out.calls
