"""A whole answer, sent in one piece."""

from collections.abc import Iterator

from sanic.response import HTTPResponse


class Answer(HTTPResponse):
    """An HTTPResponse whose headers are made into bytes in one go.

    Sanic looks for characters that would end a header in each name and value. Names are the gateway's own here, and a
    value that is printable has none of them; only other values take Sanic's way.
    """

    __slots__ = ()

    @property
    def processed_headers(self) -> Iterator[tuple[bytes, bytes]]:
        headers = self.headers
        headers.setdefault("content-type", self.content_type)
        texts = [(name, str(value)) for name, value in headers.items()]
        if not "".join([text for _, text in texts]).isprintable():
            return super().processed_headers
        return iter([(name.encode("ascii"), text.encode(errors="surrogateescape")) for name, text in texts])
