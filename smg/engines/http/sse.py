"""Server-sent events in a stream of bytes, however it is cut (WHATWG HTML 9.2; rule SPLIT, field case LM-03)."""

import re
from collections.abc import Iterator

# A blank line: two ends of line in a row. Atomic, so that one CRLF is never taken for two ends.
_BLANK = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
# Longest blank line, less one byte: where one may have begun before new bytes.
_OVERLAP = 3
# Bytes of one event that are held back at most; what is longer goes by unread.
MAX_EVENT = 4 << 20


class Events:
    """Cuts bytes into whole events: ``feed`` returns each with the blank line that ends it, ``rest`` is not whole yet.

    All that was fed comes out again, in order: the events, then ``rest``.
    """

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes and return the events they complete."""
        start = max(0, len(self.rest) - _OVERLAP)
        if self.rest:
            data = self.rest + data
        out, begin = [], 0
        for found in _BLANK.finditer(data, start):
            out.append(data[begin : found.end()])
            begin = found.end()
        self.rest = data[begin:]
        if len(self.rest) > MAX_EVENT:
            out.append(self.rest)
            self.rest = b""
        return out


def data_of(event: bytes) -> bytes:
    """The data of one event: its data fields, joined by line feeds; empty for a comment."""
    return b"\n".join(_data(event))


def _data(event: bytes) -> Iterator[bytes]:
    for line in _LINE.split(event):
        field, _, value = line.partition(b":")
        if field == b"data":
            yield value.removeprefix(b" ")
