"""Requests that others might read in another way: 400, nothing after them is answered, and the connection closes.

RFC 9112 3.2 (Host), 5.1 and 5.2 (fields), 6.1 to 6.3 (length of a body), 7.1 (chunks).
"""

import asyncio
import logging

import pytest

from smg.config.settings import SecuritySettings, ServerSettings
from smg.server import protocol
from tests.server.server_harness import Reply

# What an attacker wants to be taken for a request of its own.
HIDDEN = b"GET /pid HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"


def get(*lines: bytes, version: bytes = b"1.1", path: bytes = b"/pid") -> bytes:
    return b"".join([b"GET ", path, b" HTTP/", version, b"\r\n", *(line + b"\r\n" for line in lines), b"\r\n"])


def post(fields: bytes, body: bytes = b"hello", version: bytes = b"1.1") -> bytes:
    return b"POST /echo HTTP/" + version + b"\r\nHost: t\r\n" + fields + b"\r\n" + body


def chunks(body: bytes) -> bytes:
    return post(CHUNKED, body)


REFUSED = {
    # Host
    "no host": get(),
    "an empty host": get(b"Host:"),
    "a blank host": get(b"Host: \t "),
    "an empty host of an absolute URL": get(b"Host:", path=b"http://t/pid"),
    "two hosts": get(b"Host: t", b"Host: t"),
    "two hosts in other words": get(b"Host: t", b"hOST: other"),
    "two hosts in one": get(b"Host: t, other"),
    "a host with a path": get(b"Host: t/admin"),
    "a host with a user": get(b"Host: me@t"),
    "a host with a word for a port": get(b"Host: t:http"),
    "a host beyond ASCII": get("Host: münchen".encode()),
    "two hosts of 1.0": get(b"Host: t", b"Host: other", version=b"1.0"),
    "a malformed host of 1.0": get(b"Host: a b", version=b"1.0"),
    # fields
    "a blank before the colon": post(b"Content-Length : 5\r\n"),
    "a blank before the colon of a coding": post(b"Content-Length: 5\r\nTransfer-Encoding : chunked\r\n"),
    "a tab before the colon": post(b"Content-Length\t: 5\r\n"),
    "a folded line": get(b"Host: t", b"X: a", b" folded: b"),
    "a folded coding": post(b"Transfer-Encoding:\r\n chunked\r\n", HELLO),
    "a first line that is folded": get(b" Host: t"),
    "a bare line feed": get(b"Host: t", b"X: a\nY: b"),
    "a bare carriage return": get(b"Host: t", b"X: a\rY: b"),
    "a zero byte": get(b"Host: t", b"X: a\x00b"),
    "no name": get(b"Host: t", b": b"),
    "no colon": get(b"Host: t", b"Content-Length"),
    "a zero byte in the path": get(b"Host: t", path=b"/p\x00id"),
    "a byte beyond ASCII in the path": get(b"Host: t", path=b"/p\xffid"),
    # length
    "length and chunks": post(b"Content-Length: 5\r\n" + CHUNKED, HELLO),
    "chunks and length": post(CHUNKED + b"Content-Length: 5\r\n", HELLO),
    "two lengths": post(b"Content-Length: 5\r\nContent-Length: 6\r\n"),
    "two equal lengths": post(b"Content-Length: 5\r\nContent-Length: 5\r\n"),
    "two lengths in one": post(b"Content-Length: 5, 5\r\n"),
    "a negative length": post(b"Content-Length: -5\r\n"),
    "a length with a sign": post(b"Content-Length: +5\r\n"),
    "a length with an underscore": post(b"Content-Length: 0_5\r\n"),
    "a hexadecimal length": post(b"Content-Length: 0x5\r\n"),
    "a length in digits of another script": post("Content-Length: ٥\r\n".encode()),
    "an empty length": post(b"Content-Length:\r\n"),
    "a length of ten thousand digits": post(b"Content-Length: " + b"9" * 10_000 + b"\r\n"),
    # coding
    "chunked is not last": post(b"Transfer-Encoding: chunked, gzip\r\n", HELLO),
    "another coding before": post(b"Transfer-Encoding: gzip, chunked\r\n", HELLO),
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked\r\n", HELLO),
    "two codings": post(CHUNKED + b"Transfer-Encoding: identity\r\n", HELLO),
    "an unknown coding": post(b"Transfer-Encoding: xchunked\r\n", HELLO),
    "no coding at all": post(b"Transfer-Encoding:\r\n", HELLO),
    "identity with a length": post(b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n"),
    "chunks of 1.0": post(CHUNKED, HELLO, version=b"1.0"),
    # chunks
    "no size": chunks(b"\r\n\r\n"),
    "no hexadecimal size": chunks(b"zz\r\nhello\r\n0\r\n\r\n"),
    "a size with a sign": chunks(b"+5\r\nhello\r\n0\r\n\r\n"),
    "a negative size": chunks(b"-5\r\nhello\r\n0\r\n\r\n"),
    "a size with a prefix": chunks(b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a size with an underscore": chunks(b"0_5\r\nhello\r\n0\r\n\r\n"),
    "a blank before the size": chunks(b" 5\r\nhello\r\n0\r\n\r\n"),
    "a blank behind the size": chunks(b"5 \r\nhello\r\n0\r\n\r\n"),
    "a size in digits of another script": chunks("٥\r\nhello\r\n0\r\n\r\n".encode()),
    "a size that ends in a line feed": chunks(b"5\nhello\r\n0\r\n\r\n"),
    "a size with a line feed": chunks(b"5\n\r\nhello\r\n0\r\n\r\n"),
    "an extension with a line feed": chunks(b"5;\nx\r\nhello\r\n0\r\n\r\n"),
    "more than the size": chunks(b"5\r\nhelloXX0\r\n\r\n"),
    "more than the size, hidden": chunks(b"5\r\nhello" + b"XX5\r\nworld\r\n0\r\n\r\n"),
    "less than the size": chunks(b"6\r\nhello\r\n0\r\n\r\n"),
    "a chunk that ends in a line feed": chunks(b"5\r\nhello\n0\r\n\r\n"),
    "trailers": chunks(b"5\r\nhello\r\n0\r\nX: y\r\n\r\n"),
    "a size beyond all numbers": chunks(b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n"),
    "an endless extension": chunks(b"5;" + b"x" * 200),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_ambiguous_is_a_400_and_ends_the_connection(application, case):
    app = await application()
    data = await app.raw(REFUSED[case] + HIDDEN)
    reply = Reply(data)
    assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")
    assert reply.headers["x-request-id"]
    assert reply.headers["connection"] == "close"
    assert data.count(b"HTTP/1.1 ") == 1
    await app.idle()
    assert sum(app.samples("smg_http_responses_total").values()) == 1


WORDS = {
    "no host": "the request has no Host header",
    "two hosts": "the request has more than one Host header",
    "a host with a path": "the request's Host header is malformed",
    "a negative length": "the request's Content-Length is malformed",
    "two lengths": "the request's head is malformed",
    "a blank before the colon": "the request's head is malformed",
    "no colon": "the request's head is malformed",
    "a byte beyond ASCII in the path": "the request's URL is malformed",
}


@pytest.mark.parametrize("case", WORDS)
async def test_the_answer_says_what_is_wrong(application, case):
    app = await application()
    assert Reply(await app.raw(REFUSED[case])).json["error"]["message"] == WORDS[case]


TAKEN = {
    "a port": (get(b"Host: t:8080"), b""),
    "a port left out": (get(b"Host: t:"), b""),
    "an address": (get(b"Host: 10.0.0.1:80"), b""),
    "an address of version 6": (get(b"Host: [::1]:80"), b""),
    "a name of Kubernetes": (get(b"Host: smg-server_1.default.svc.cluster.local"), b""),
    "blanks around the host": (get(b"Host: \t t \t"), b""),
    "an absolute URL": (get(b"Host: t", path=b"http://t/pid"), b""),
    "a length": (post(b"Content-Length: 5\r\n"), b'"size":5'),
    "a length with zeros": (post(b"Content-Length: 0005 \r\n"), b'"size":5'),
    "chunks": (chunks(HELLO), b'"size":5'),
    "chunks in capitals": (post(b"transfer-encoding: \tChunked \r\n", HELLO), b'"size":5'),
    "sizes in capitals, with zeros": (chunks(b"0000A\r\nhellohello\r\n00\r\n\r\n"), b'"size":10'),
    "extensions": (chunks(b'5;a=b;c="d e"\r\nhello\r\n1 ;x\r\n!\r\n0;last\r\n\r\n'), b'"size":6'),
    "chunks with line ends in them": (chunks(b"6\r\n\r\n5\r\n\r\r\n0\r\n\r\n"), b'"size":6'),
}


@pytest.mark.parametrize("case", TAKEN)
async def test_what_the_standard_allows_is_taken_and_the_connection_goes_on(application, case):
    app = await application()
    asked, expected = TAKEN[case]
    data = await app.raw(asked + HIDDEN)
    assert data.count(b"HTTP/1.1 200") == 2
    assert expected in data


@pytest.mark.parametrize("fields", [(), (b"Host:",), (b"Host: t",)])
async def test_HTTP_1_0_needs_no_host(application, fields):
    app = await application()
    assert Reply(await app.raw(get(*fields, version=b"1.0"))).status == 200


async def test_who_waits_for_100_sends_chunks_then(application):
    app = await application()
    reader, writer = await app.connect()
    writer.write(post(CHUNKED + b"Expect: 100-continue\r\nConnection: close\r\n", b""))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    for byte in HELLO:
        writer.write(bytes([byte]))
        await writer.drain()
    reply = Reply(await reader.read())
    assert (reply.status, reply.json["size"]) == (200, 5)


@pytest.mark.parametrize("size", [1001, 1_200_000, 6_000_000])
async def test_who_sends_its_whole_body_before_it_reads_still_gets_to_know_that_it_was_too_long(application, size):
    app = await application(server=ServerSettings(max_payload_size=1000))
    reader, writer = await app.connect()
    writer.write(b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % size)
    for _ in range(0, size, 1000):
        writer.write(b"x" * 1000)
        await writer.drain()
    reply = Reply(await reader.read())
    assert (reply.status, reply.json["error"]["code"]) == (413, "request_too_large")
    writer.close()
    await app.idle()


@pytest.mark.parametrize(
    ("limit", "fields", "goes_on"),
    [
        (1000, b"Content-Length: 1001\r\n", False),
        (2 << 20, b"Content-Length: 1500000\r\n", False),
        (2 << 20, b"Content-Length: 1000\r\n", True),
        (2 << 20, CHUNKED, False),
    ],
)
async def test_a_connection_that_ends_after_an_early_answer_is_said_to(application, limit, fields, goes_on):
    app = await application(server=ServerSettings(max_payload_size=limit), security=SecuritySettings(api_key=("k",)))
    reader, writer = await app.connect()
    writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: t\r\n" + fields + b"\r\n" + b"x" * 1000)
    head = await reader.readuntil(b"\r\n\r\n")
    assert (b"connection: keep-alive" if goes_on else b"connection: close") in head
    writer.write(HIDDEN)
    assert ((await reader.read()).count(b"HTTP/1.1 200") == 1) == goes_on
    writer.close()


async def test_who_goes_on_sending_is_sent_away_in_the_end(application, monkeypatch):
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.2)
    app = await application(server=ServerSettings(max_payload_size=1000))
    _, writer = await app.connect()
    writer.write(b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def go_on() -> None:
        while True:
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(go_on(), 10)
    await app.idle()


async def test_the_rest_of_a_body_nobody_wanted_is_not_waited_for_without_end(application, monkeypatch, caplog):
    monkeypatch.setattr(protocol, "BODY_SILENCE_SECONDS", 0.2)
    caplog.set_level(logging.INFO)
    app = await application(security=SecuritySettings(api_key=("k",)))
    data = await app.raw(b"POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nabc")
    assert Reply(data).status == 401
    assert data.count(b"HTTP/1.1 ") == 1
    assert not [record for record in caplog.records if record.exc_info]
