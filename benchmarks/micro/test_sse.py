"""What one streamed token's event costs: escaping and filling the dialect's byte template."""

import pytest

from smg._native import sse

HEAD = b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
PIECES = (HEAD + b'"choices":[{"index":0,"delta":{"content":"', b'"},"finish_reason":null}]}\n\n')
PLAIN = " of the most beautiful cities in Europe"
HARD = 'He said: "naïve"\n\tC:\\temp\u2028 🎉'


@pytest.mark.parametrize("text", [" the", PLAIN, HARD], ids=["token", "sentence", "escapes"])
def test_escape(benchmark, text):
    assert benchmark(sse.escape, text)


@pytest.mark.parametrize("text", [" the", HARD], ids=["token", "escapes"])
def test_fill(benchmark, text):
    assert benchmark(sse.fill, PIECES, ("text",), text, 0).endswith(b"\n\n")
