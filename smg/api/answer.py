"""A whole answer, sent in one piece."""

from sanic.headers import format_http1_response
from sanic.response import HTTPResponse

# What an answer has besides the headers it was made with.
_OWN = frozenset({"content-length", "connection", "content-type"})


class Answer(HTTPResponse):
    """An HTTPResponse that makes its bytes in one go, where its client takes it whole.

    Sanic goes over each name and value for characters that would end a header. Here the head is searched for them as a
    whole, and only one that has some takes Sanic's way.
    """

    __slots__ = ()

    def whole(self, *, keep_alive: bool) -> bytes:
        """Head and body, for a client of HTTP/1.1 that wants both."""
        body, lines, own = self.body or b"", "HTTP/1.1 200 OK", False
        for name, value in self.headers.items():
            lines += f"\n{name}: {value}"
            own = own or name.lower() in _OWN
        connection = "keep-alive" if keep_alive else "close"
        lines += f"\ncontent-length: {len(body)}\nconnection: {connection}\ncontent-type: {self.content_type}"
        ended = lines.count("\n") != len(self.headers) + 3 or "\r" in lines or "\0" in lines
        if ended or own or self.status != 200:
            return self._any(body, keep_alive)
        return f"{lines}\n\n".replace("\n", "\r\n").encode(errors="surrogateescape") + body

    def _any(self, body: bytes, keep_alive: bool) -> bytes:
        headers = self.headers
        headers["content-length"] = str(len(body))
        headers["connection"] = "keep-alive" if keep_alive else "close"
        return format_http1_response(self.status, self.processed_headers) + body
