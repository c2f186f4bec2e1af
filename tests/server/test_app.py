"""The application: identity, errors in the dialect's shape, limits, keys, and accounting to the last byte."""

import asyncio
import json
import logging

import pytest

from smg.config.settings import SecuritySettings, ServerSettings
from smg.server import protocol
from smg.server.middleware import DISPATCH, ENDPOINT
from tests.server.server_harness import Reply


def test_the_layers_stand_in_the_specified_order():
    assert [layer.name for layer in (*DISPATCH, *ENDPOINT)] == [
        *("identify", "account", "log_access", "answer_preflight"),
        *("limit_body", "authenticate", "read_body"),
    ]


async def test_a_request_gets_an_id_that_tells_its_endpoint(application):
    app = await application()
    reply = await app.ask("POST", "/v1/messages", body=b"{}")
    assert reply.headers["x-request-id"].startswith("msg_")
    assert reply.json["id"] == reply.headers["x-request-id"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Request-Id": "abc"}, "abc"),
        ({"X-Correlation-Id": "c", "x-trace-id": "t"}, "c"),
        ({"X-Request-Id": "not ok", "request-id": "fine"}, "fine"),
        ({"X-Request-Id": "x" * 129}, None),
    ],
)
async def test_the_clients_own_id_is_taken_when_acceptable(application, headers, expected):
    reply = await (await application()).ask("POST", "/echo", headers)
    if expected is None:
        assert reply.headers["x-request-id"].startswith("req-")
    else:
        assert reply.headers["x-request-id"] == expected


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/echo", 405, "method_not_allowed"),
        ("BREW", "/echo", 405, "method_not_allowed"),
        ("GET", "/broken", 500, "internal_error"),
    ],
)
async def test_errors_have_the_openai_shape_and_an_id(application, method, path, status, code):
    reply = await (await application()).ask(method, path)
    assert reply.status == status
    assert reply.json["error"]["code"] == reply.headers["x-smg-error-code"] == code
    assert reply.headers["content-type"] == "application/json"
    assert "alt-svc" not in reply.headers
    assert reply.headers["x-request-id"]
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body


async def test_a_wrong_method_names_the_right_ones(application):
    reply = await (await application()).ask("GET", "/v1/messages")
    assert reply.status == 405
    assert reply.headers["allow"] == "POST"


async def test_errors_have_the_shape_of_the_dialect_that_owns_the_path(application):
    reply = await (await application(security=SecuritySettings(api_key=("k",)))).ask("POST", "/v1/messages")
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.json == {
        "type": "error",
        "error": {"type": "authentication_error", "message": reply.json["error"]["message"]},
        "request_id": reply.headers["x-request-id"],
    }


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 66000 + b"\r\n\r\n", 413),
        (b"GET http:// HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        (b"GET /pid HTTP/1.1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: t\r\nExpect: magic\r\nContent-Length: 1\r\n\r\n", 417),
    ],
)
async def test_what_is_no_valid_request_gets_an_error_body_too(application, raw, status):
    app = await application()
    reply = Reply(await app.raw(raw))
    assert reply.status == status
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert reply.headers["x-request-id"]
    assert reply.headers["connection"] == "close"
    await app.idle()
    assert sum(app.samples("smg_http_responses_total").values()) == 1


@pytest.mark.parametrize("name", ["X", "x-_.~!#$%&'*+^`|9"])
async def test_every_token_is_a_header_name_and_values_may_have_bytes_beyond_ascii(application, name):
    app = await application()
    raw = b"GET /pid HTTP/1.1\r\nHost: t\r\nConnection: close\r\n" + name.encode() + b":\tcaf\xe9 \xc3\xa9\t\r\n\r\n"
    assert Reply(await app.raw(raw)).status == 200


async def test_a_stream_to_a_client_of_http_1_0_ends_with_its_connection(application):
    """RFC 9112 6.1: no chunks for who does not know them."""
    app = await application()
    for extra in (b"", b"Connection: keep-alive\r\n"):
        reply = Reply(await app.raw(b"GET /stream HTTP/1.0\r\n" + extra + b"\r\n"))
        assert reply.status == 200
        assert "transfer-encoding" not in reply.headers
        assert reply.headers["connection"] == "close"
        assert reply.body.startswith(b"line\n")
        assert reply.body.endswith(b"line\ndone\n")
    await app.idle()
    assert app.samples("smg_http_responses_total") == {("/stream", "200", ""): 2}


async def test_a_client_that_leaves_with_its_whole_answer_has_not_disconnected(application, caplog):
    caplog.set_level(logging.INFO, "smg.access")
    app = await application()
    reader, writer = await app.connect()
    writer.write(b"GET /slow-end HTTP/1.1\r\nHost: t\r\n\r\n")
    assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"all of it\r\n0\r\n\r\n")
    writer.close()
    await app.idle()
    (record,) = (vars(record) for record in caplog.records if record.name == "smg.access")
    assert record["status"] == 200
    assert not record.get("error")
    assert app.samples("smg_http_responses_total") == {("/slow-end", "200", ""): 1}


async def drip(app, first: bytes, each: bytes, every: float) -> Reply:
    """What comes back to a client that sends ``each`` again and again."""
    reader, writer = await app.connect()
    writer.write(first)

    async def go_on() -> None:
        while True:
            await asyncio.sleep(every)
            writer.write(each)

    dripping = asyncio.create_task(go_on())
    try:
        # One write of the server's; what drips on after that may reset the connection.
        return Reply(await asyncio.wait_for(reader.read(65536), 10))
    finally:
        dripping.cancel()
        writer.close()


BODY = b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n"
CHUNKS = b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "each", "every"),
    [
        pytest.param(b"GET /pid HTTP/1.1\r\nX: ", b"x", 0.02, id="a head that never ends"),
        pytest.param(BODY, b"", 1, id="a body that does not come"),
        pytest.param(BODY, b"x", 0.02, id="a body that drips"),
        pytest.param(CHUNKS, b"1\r\nx\r\n", 0.02, id="chunks that drip"),
    ],
)
async def test_who_holds_a_connection_on_purpose_is_sent_away(application, monkeypatch, first, each, every):
    monkeypatch.setattr(protocol, "BODY_SILENCE_SECONDS", 0.2)
    app = await application(server=ServerSettings(header_timeout_secs=0.2))
    reply = await drip(app, first, each, every)
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
    assert reply.headers["connection"] == "close"
    await app.idle()
    assert sum(app.samples("smg_http_responses_total").values()) == 1


async def test_a_slow_body_is_waited_for(application, monkeypatch):
    monkeypatch.setattr(protocol, "BODY_SILENCE_SECONDS", 0.5)
    app = await application()
    reader, writer = await app.connect()
    writer.write(b"POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n")
    for _ in range(10):
        # Together twice as long as it may pause.
        await asyncio.sleep(0.1)
        writer.write(b"x" * 2000)
    assert Reply(await reader.read()).json["size"] == 20000


async def test_headers_up_to_64_kib_are_fine(application):
    assert (await (await application()).ask("POST", "/echo", {"X-Big": "x" * 60000})).status == 200


async def test_a_body_within_the_limit_arrives_whole(application):
    app = await application(server=ServerSettings(max_payload_size=300_000))
    assert (await app.ask("POST", "/echo", body=b"x" * 300_000)).json["size"] == 300_000


async def test_a_longer_body_is_refused(application):
    app = await application(server=ServerSettings(max_payload_size=1000))
    reply = await app.ask("POST", "/echo", body=b"x" * 1001)
    assert (reply.status, reply.json["error"]["code"]) == (413, "request_too_large")


async def test_a_compressed_body_is_refused_by_name(application):
    app = await application()
    reply = await app.ask("POST", "/echo", {"content-encoding": "gzip"}, b"\x1f\x8b\x08")
    assert (reply.status, reply.json["error"]["code"]) == (415, "unsupported_media_type")
    assert "'gzip'" in reply.json["error"]["message"]
    assert (await app.ask("POST", "/echo", {"content-encoding": "identity"}, b"xyz")).json["size"] == 3


async def test_a_longer_body_is_refused_before_it_is_sent(application):
    app = await application(server=ServerSettings(max_payload_size=1000))
    reply = Reply(await app.raw(b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999\r\n\r\n"))
    assert reply.status == 413


async def test_a_longer_chunked_body_is_refused(application):
    app = await application(server=ServerSettings(max_payload_size=1000))
    head = b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"258\r\n" + b"x" * 600 + b"\r\n"
    assert Reply(await app.raw(head + chunk + chunk + b"0\r\n\r\n")).status == 413


async def test_nobody_without_a_key_makes_us_read_a_body(application):
    app = await application(security=SecuritySettings(api_key=("k",)))
    reply = Reply(await app.raw(b"POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999\r\n\r\n"))
    assert reply.status == 401


async def test_a_body_that_does_not_come_is_a_timeout(application):
    app = await application(server=ServerSettings(request_timeout_secs=0.05))
    reply = Reply(await app.raw(b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc"))
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")


async def test_admin_routes_use_the_gate_with_the_connections_own_address(application):
    app = await application()
    assert (await app.ask("POST", "/flush_cache")).json["principal"] == "loopback"
    reply = await app.ask("POST", "/flush_cache", {"X-Forwarded-For": "127.0.0.1"})
    assert (reply.status, reply.json["error"]["code"]) == (403, "permission_denied")


async def test_path_parameters_reach_the_handler(application):
    for path in ("org/name", "org%2Fname"):
        assert (await (await application()).ask("GET", f"/v1/models/{path}")).body == b"org/name"
    assert (await (await application()).ask("GET", "/v1/models/a%2525b")).body == b"a%25b"


async def test_head_works_where_get_does(application):
    reply = await (await application()).ask("HEAD", "/health")
    assert (reply.status, reply.body) == (200, b"")


async def test_finished_requests_are_counted_once_by_template(application):
    app = await application()
    for path in ("/v1/models/a", "/v1/models/b", "/nothing", "/elsewhere"):
        await app.ask("GET", path)
    await app.ask("BREW", "/nothing")
    await app.idle()
    assert app.samples("smg_http_requests_total") == {
        ("GET", "/v1/models/<name:path>"): 2,
        ("GET", "unmatched"): 2,
        ("other", "unmatched"): 1,
    }
    assert app.samples("smg_http_responses_total") == {
        ("/v1/models/<name:path>", "200", ""): 2,
        ("unmatched", "404", "not_found"): 3,
    }
    assert app.samples("smg_http_requests_active") == {(): 0}


async def test_a_stream_counts_until_its_last_byte(application):
    app = await application()
    asked = asyncio.create_task(app.ask("GET", "/stream?seconds=0.3"))
    await asyncio.sleep(0.1)
    assert app.samples("smg_http_requests_active") == {(): 1}
    assert app.samples("smg_http_connections_active") == {(): 1}
    assert app.samples("smg_http_responses_total") == {}
    reply = await asked
    assert b"done\n" in reply.body
    await app.idle()
    assert app.samples("smg_http_requests_active") == {(): 0}
    assert app.samples("smg_http_responses_total") == {("/stream", "200", ""): 1}
    total = app.samples("smg_http_request_duration_seconds_sum")[("GET", "/stream")]
    assert total >= 250_000


PIPELINED = b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n"
BIG = b"x" * 200_000


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /buffered HTTP/1.1\r\nHost: t\r\n\r\n",
        b"GET /buffered HTTP/1.1\r\nHost: t\r\n\r\n" + PIPELINED,
        b"POST /buffered HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(BIG) + BIG,
    ],
    ids=["plain", "pipelined", "after a large body"],
)
@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_RL_04_a_client_that_leaves_ends_its_buffered_request(application, request_bytes, how):
    app = await application()
    _, writer = await app.connect()
    writer.write(request_bytes)
    await writer.drain()
    await until(lambda: "started" in app.app.ctx.story)
    if how == "half-close":
        writer.write_eof()
    elif how == "close":
        writer.close()
    else:
        writer.transport.abort()
    await app.idle()
    assert app.app.ctx.story == ["started", "told client_disconnect", "cancelled"]
    assert app.samples("smg_http_responses_total") == {("/buffered", "499", "client_disconnected"): 1}
    assert app.samples("smg_http_requests_active") == {(): 0}
    writer.close()


async def test_RL_04_a_client_that_leaves_over_tls_is_noticed_too(application, certificate):
    app = await application(server=ServerSettings(**certificate))
    _, writer = await app.connect()
    writer.write(b"POST /buffered HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(BIG) + BIG)
    await writer.drain()
    await until(lambda: "started" in app.app.ctx.story)
    writer.transport.abort()
    await app.idle()
    assert app.app.ctx.story == ["started", "told client_disconnect", "cancelled"]


async def test_tls_serves(application, certificate):
    app = await application(server=ServerSettings(**certificate))
    assert (await app.ask("POST", "/echo", body=BIG)).json["size"] == len(BIG)


async def until(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


async def test_RL_04_a_client_that_leaves_its_stream_is_a_499(application):
    app = await application()
    reader, writer = await app.connect()
    writer.write(b"GET /stream?seconds=30 HTTP/1.1\r\nHost: t\r\n\r\n")
    await reader.readuntil(b"line")
    writer.transport.abort()
    await app.idle()
    assert app.samples("smg_http_responses_total") == {("/stream", "499", "client_disconnected"): 1}
    await until(lambda: app.samples("smg_http_connections_active") == {(): 0})


async def test_a_stream_that_breaks_does_not_look_complete(application, caplog):
    app = await application()
    data = await app.raw(b"GET /broken-stream HTTP/1.1\r\nHost: t\r\n\r\n")
    assert b"begun" in data
    assert not data.endswith(b"0\r\n\r\n")
    assert b"secret" not in data
    await app.idle()
    assert "a handler failed after its answer had begun" in caplog.text


async def test_pipelined_requests_are_answered_in_order(application):
    app = await application()
    last = b"GET /pid HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    data = await app.raw(b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc" + PIPELINED + last)
    assert data.count(b"HTTP/1.1 200") == 3
    assert data.index(b'"size":3') < data.index(b"\r\n\r\nOK")


async def test_every_request_leaves_one_access_record(application, caplog):
    caplog.set_level(logging.INFO, "smg.access")
    app = await application()
    await app.ask("POST", "/echo", {"X-Request-Id": "r1"}, b"abc")
    await app.ask("GET", "/nothing?key=secret")
    await app.idle()
    first, second = (vars(record) for record in caplog.records if record.name == "smg.access")
    assert (first["request_id"], first["method"], first["path"], first["status"]) == ("r1", "POST", "/echo", 200)
    assert (first["model"], first["client"], first["principal"]) == ("m", "127.0.0.1", "anonymous")
    assert (second["path"], second["status"], second["error"]) == ("/nothing", 404, "not_found")
    assert "secret" not in json.dumps([first, second], default=str)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: t\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: t\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    ],
    ids=["head", "url", "too long", "lengths"],
)
async def test_who_has_sent_a_head_that_is_refused_is_in_the_access_log(application, caplog, head, status):
    caplog.set_level(logging.INFO, "smg.access")
    app = await application()
    assert (await app.raw(head)).startswith(b"HTTP/1.1 %d" % status)
    await app.idle()
    [told] = (vars(record) for record in caplog.records if record.name == "smg.access")
    assert (told["status"], told["client"]) == (status, "127.0.0.1")
