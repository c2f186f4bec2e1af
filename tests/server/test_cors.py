"""Pages of other origins: what browsers ask, and which answers they let a page read (Fetch standard, CORS protocol)."""

import pytest

from smg.config.settings import ServerSettings
from tests.server.server_harness import Reply

PAGE = {"origin": "https://app.example"}
ASKING = {**PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization,x-own"}
LISTED = ServerSettings(cors_allowed_origins=("https://app.example", "http://localhost:3000"))


async def test_any_page_may_use_inference_when_no_origin_is_named(application):
    app = await application()
    asked = await app.ask("OPTIONS", "/v1/messages", ASKING)
    assert (asked.status, asked.body) == (204, b"")
    assert asked.headers["access-control-allow-origin"] == "*"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-headers"] == "authorization,x-own"
    assert asked.headers["access-control-max-age"] == "3600"
    reply = await app.ask("POST", "/v1/messages", PAGE, b"{}")
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "*")
    assert "x-request-id" in reply.headers["access-control-expose-headers"]


async def test_streams_and_errors_can_be_read_too(application):
    app = await application()
    for method, path, status in (("GET", "/stream", 200), ("GET", "/nothing", 404), ("GET", "/broken", 500)):
        reply = await app.ask(method, path, PAGE)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (status, "*")


async def test_only_named_origins_when_some_are_named(application):
    app = await application(server=LISTED)
    reply = await app.ask("POST", "/echo", PAGE)
    assert (reply.headers["access-control-allow-origin"], reply.headers["vary"]) == ("https://app.example", "origin")
    asked = await app.ask("OPTIONS", "/echo", ASKING)
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "https://app.example")
    for origin in ("https://evil.example", "https://app.example.evil", "http://app.example", "null"):
        asked = await app.ask("OPTIONS", "/echo", {**ASKING, "origin": origin})
        assert asked.status == 405
        reply = await app.ask("POST", "/echo", {"origin": origin})
        assert reply.status == 200, "it is the browser that keeps the answer from the page"
        for answer in (asked, reply):
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "origin"


async def test_admin_routes_are_open_to_no_page(application):
    app = await application()
    asked = await app.ask("OPTIONS", "/flush_cache", ASKING)
    reply = await app.ask("POST", "/flush_cache", PAGE)
    assert (asked.status, reply.status) == (405, 200)
    assert "access-control-allow-origin" not in reply.headers


async def test_who_is_no_browser_sees_nothing_of_it(application):
    app = await application(server=LISTED)
    reply = await app.ask("POST", "/echo")
    assert not {name for name in reply.headers if name.startswith("access-control") or name == "vary"}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nothing", ASKING, 404),
        ("/echo", {**ASKING, "access-control-request-method": "PUT"}, 405),
        ("/echo", PAGE, 405),
        ("/echo", {}, 405),
    ],
)
async def test_what_is_no_question_about_a_route_is_an_error_as_ever(application, path, headers, status):
    reply = await (await application()).ask("OPTIONS", path, headers)
    assert reply.status == status
    assert reply.json["error"]["code"] == {404: "not_found", 405: "method_not_allowed"}[status]


async def test_a_question_is_counted_and_the_connection_goes_on(application):
    app = await application()
    asking = "".join(f"{name}: {value}\r\n" for name, value in ASKING.items()).encode()
    data = await app.raw(
        b"OPTIONS /echo HTTP/1.1\r\nHost: t\r\n" + asking + b"\r\n"
        b"POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    )
    first, second = data.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], second[:3]) == (b"204", b"200")
    assert Reply(b"HTTP/1.1 " + second).json["size"] == 3
    await app.idle()
    assert sum(app.samples("smg_http_responses_total").values()) == 2
