"""The headers of whole answers are what Sanic would send."""

import pytest
from sanic.headers import format_http1_response
from sanic.response import HTTPResponse

from smg.api.answer import Answer


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-smg-worker": "w-1", "X-Request-Id": "chatcmpl-1"},
        {"content-type": "text/plain"},
        {"x-smg-warning": "umlaut \u00e4, snow \u2603"},
        {"x-forged": "one\r\nset-cookie: a=b", "x-zero": "a\0b"},
    ],
)
def test_headers_are_those_of_any_response(headers, status, keep_alive):
    more = {"content-length": 2, "connection": "keep-alive" if keep_alive else "close"}
    plain = HTTPResponse(b"{}", status, {**headers, **more}, content_type="application/json")
    sent = Answer(b"{}", status, dict(headers), content_type="application/json").whole(keep_alive=keep_alive)
    assert sent == format_http1_response(status, plain.processed_headers) + b"{}"
    lines = sent.split(b"\r\n\r\n")[0].split(b"\r\n")
    assert len(lines) == 1 + len({"content-type", *headers}) + len(more)


def test_a_line_feed_ends_no_header():
    sent = Answer(b"{}", 200, {"x-forged": "one\nset-cookie: a=b"}, content_type="application/json")
    assert b"x-forged: oneset-cookie: a=b\r\n" in sent.whole(keep_alive=True)
