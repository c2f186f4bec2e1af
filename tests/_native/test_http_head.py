"""Ordinary heads of requests, against a model in regular expressions and the checks that every head must pass."""

import re

from hypothesis import given
from hypothesis import strategies as st
from sanic.compat import Header

from smg._native.http_head import ordinary_head
from smg.server.strict import check_head

LIMIT = 65536
FIRST = re.compile(rb"([!-~]+) ([!-~]+) HTTP/1\.1")
FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([ -~\t]*)")
HOST = re.compile(r"[0-9A-Za-z\-._~]+(:[0-9]*)?")


def model(buffer: bytes, limit: int = LIMIT):
    head, mark, _ = buffer.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    top = FIRST.fullmatch(first)
    found = [FIELD.fullmatch(line) for line in lines]
    if not mark or len(head) >= limit or top is None or None in found:
        return None
    fields = [(match[1].decode().lower(), match[2].decode()) for match in found]
    named = {name: [value for key, value in fields if key == name] for name, _ in fields}
    hosts, lengths = named.get("host", []), named.get("content-length", [])
    if named.keys() & {"transfer-encoding", "expect", "upgrade"} or len(lengths) > 1 or len(hosts) != 1:
        return None
    if HOST.fullmatch(hosts[0]) is None or any(re.fullmatch("[0-9]{1,18}", length) is None for length in lengths):
        return None
    keep_alive = named.get("connection", ["keep-alive"])[-1].lower() == "keep-alive"
    return head, top[1].decode(), top[2], fields, int(lengths[0]) if lengths else -1, keep_alive


LINES = st.sampled_from(
    [
        b"Host: t",
        b"hOST:\t127.0.0.1:80",
        b"Host: a b",
        b"Host: [::1]:80",
        b"Content-Length: 12",
        b"Content-Length: 12 ",
        b"content-length:",
        b"Content-Length: 1234567890123456789",
        b"Connection: close",
        b"Connection: Keep-Alive",
        b"connection: keep-alive ",
        b"Transfer-Encoding: chunked",
        b"Expect: 100-continue",
        b"Upgrade: h2c",
        b"X-Long-Name-" + b"a" * 70 + b": v",
        b"X: \t a b\t",
        b"X:",
        b"X : a",
        b" X: folded",
        b"X: \xe9",
        b"X: a\rb",
        b"X: a\nb",
        b"X: a\x00b",
        b": none",
        b"nothing",
        b"",
    ]
) | st.binary(max_size=8).map(lambda value: b"Y: " + value)
FIRSTS = st.sampled_from(
    [
        b"POST /v1/chat/completions?a=b HTTP/1.1",
        b"get * HTTP/1.1",
        b"GET /a HTTP/1.0",
        b"GET /a HTTP/1.1 ",
        b"GET  /a HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"GET / ",
        b"GET",
        b"",
    ]
)


@given(FIRSTS, st.lists(LINES, max_size=6), st.binary(max_size=12), st.booleans())
def test_a_head_is_taken_apart_as_the_model_does(first, lines, body, whole):
    buffer = b"\r\n".join([first, b"Host: t", *lines, b"\r\n" if whole else b""]) + body
    assert ordinary_head(bytearray(buffer), LIMIT) == model(buffer)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_as_the_model_does(buffer):
    assert ordinary_head(bytearray(buffer), LIMIT) == model(buffer)


@given(FIRSTS, st.lists(LINES, max_size=4))
def test_what_is_ordinary_passes_the_checks_of_every_head(first, lines):
    found = ordinary_head(bytearray(b"\r\n".join([first, b"Host: t", *lines, b"\r\n"])), LIMIT)
    if found is not None:
        head, _, _, fields, length, _ = found
        check_head(head, Header(fields), "1.1")
        assert length < 0 or int(Header(fields)["content-length"]) == length


def test_what_a_client_sends_is_ordinary():
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway:8080\r\nContent-Length: 2\r\nAuthorization: Bearer k\r\n"
    )
    assert ordinary_head(bytearray(head + b"\r\n{}"), LIMIT) == (
        head[:-2],
        "POST",
        b"/v1/chat/completions",
        [("host", "gateway:8080"), ("content-length", "2"), ("authorization", "Bearer k")],
        2,
        True,
    )


def test_a_head_that_is_not_here_as_a_whole_is_none_yet():
    whole = b"GET / HTTP/1.1\r\nHost: t:1\r\nX: y\r\n\r\n"
    assert ordinary_head(bytearray(whole), LIMIT) is not None
    for size in range(len(whole)):
        assert ordinary_head(bytearray(whole[:size]), LIMIT) is None


def test_a_head_beyond_the_limit_is_left_to_who_refuses_it():
    head = b"GET / HTTP/1.1\r\nHost: t"
    assert ordinary_head(bytearray(head + b"\r\n\r\n"), len(head)) is None
    assert ordinary_head(bytearray(head + b"\r\n\r\n"), len(head) + 1) is not None
