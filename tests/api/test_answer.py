"""The headers of whole answers are what Sanic would send."""

import pytest
from sanic.response import HTTPResponse

from smg.api.answer import Answer


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-smg-worker": "w-1", "X-Request-Id": "chatcmpl-1", "content-length": 12},
        {"content-type": "text/plain"},
        {"x-smg-warning": "umlaut \u00e4, snow \u2603"},
        {"x-forged": "one\r\nset-cookie: a=b", "x-zero": "a\0b"},
    ],
)
def test_headers_are_those_of_any_response(headers):
    answer, plain = (
        kind(b"{}", headers=dict(headers), content_type="application/json") for kind in (Answer, HTTPResponse)
    )
    sent = list(answer.processed_headers)
    assert sent == list(plain.processed_headers)
    assert not any(b"\n" in value or b"\r" in value for _, value in sent)
