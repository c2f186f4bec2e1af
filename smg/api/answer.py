"""A whole answer, sent in one piece."""

from sanic.headers import format_http1_response
from sanic.response import HTTPResponse


class Answer(HTTPResponse):
    """An HTTPResponse that makes its bytes in one go, where its client takes it whole.

    Sanic looks for characters that would end a header in each name and value. Names are the gateway's own here, and a
    value that is printable has none of them; only other values take Sanic's way.
    """

    __slots__ = ()

    def whole(self, *, keep_alive: bool) -> bytes:
        """Head and body, for a client of HTTP/1.1 that wants both."""
        body, headers = self.body or b"", self.headers
        headers["content-length"] = str(len(body))
        headers["connection"] = "keep-alive" if keep_alive else "close"
        headers.setdefault("content-type", self.content_type)
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if self.status != 200 or not "".join(lines).isprintable():
            return format_http1_response(self.status, self.processed_headers) + body
        head = "\r\n".join(["HTTP/1.1 200 OK", *lines])
        return b"%b\r\n\r\n%b" % (head.encode(errors="surrogateescape"), body)
