"""Connections: how many there may be, how long they may be idle, and what becomes of one too many."""

import asyncio
import resource
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from smg.config.settings import ServerSettings
from smg.server import crowd
from smg.server.crowd import Crowd, Place, most_connections
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from tests.server.server_harness import Application, Reply

HEALTH = b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n"
MESSAGES = b"POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n%b"


@asynccontextmanager
async def open_connections(app: Application, count: int):
    """So many connections that have been accepted and say nothing; the server knows when they have gone."""
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(count):
            pairs.append(await app.connect())
            stack.callback(pairs[-1][1].close)
        await until(lambda: active(app) == count)
        yield pairs
    await until(lambda: active(app) == 0)


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def active(app: Application) -> int:
    return app.samples("smg_http_connections_active").get((), 0)


def refused(app: Application) -> int:
    return app.samples("smg_http_connections_refused_total").get((), 0)


async def full(application, **server) -> Application:
    return await application(server=ServerSettings(max_connections=4, **server))


async def test_one_connection_too_many_is_a_503_in_the_dialects_shape(application):
    app = await full(application)
    async with open_connections(app, 4) as ((reader, writer), *_):
        reply = Reply(await app.raw(MESSAGES % (2, b"{}")))
        assert (reply.status, reply.headers["retry-after"], reply.headers["connection"]) == (503, "1", "close")
        assert (reply.headers["x-smg-error-code"], reply.json["error"]["type"]) == ("overloaded", "overloaded_error")
        assert reply.headers["x-request-id"]
        assert app.samples("smg_http_responses_total") == {("/v1/messages", "503", "overloaded"): 1}
        assert refused(app) == 1
        # Those that were there before go on.
        writer.write(HEALTH)
        assert (await reader.readuntil(b"OK")).startswith(b"HTTP/1.1 200")
    assert Reply(await app.raw(MESSAGES.replace(b"Host", b"Connection: close\r\nHost") % (2, b"{}"))).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/readiness", 200),
        ("GET", "/metrics", 200),
        ("POST", "/flush_cache", 200),
        ("GET", "/nothing", 404),
        ("GET", "/v1/messages", 405),
    ],
)
async def test_operators_are_still_answered_once_per_connection(application, method, path, status):
    app = await full(application)
    async with open_connections(app, 4):
        # Without being asked to, the connection is closed, and the second request is not answered.
        asked = b"%b %b HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n" % (method.encode(), path.encode())
        data = await app.raw(asked + asked)
        assert (Reply(data).status, data.count(b"HTTP/1.1 ")) == (status, 1)
        assert Reply(data).headers["connection"] == "close"
        assert refused(app) == 0


async def test_a_crowd_before_the_door_is_told_by_fixed_bytes(application, monkeypatch):
    monkeypatch.setattr(crowd, "GUESTS", 1)
    app = await full(application)
    async with open_connections(app, 5):
        for asked in (HEALTH, MESSAGES % (5000, b"x" * 5000), b""):
            reply = Reply(await app.raw(asked))
            assert (reply.status, reply.json["error"]["code"]) == (503, "overloaded")
            assert reply.json["error"]["type"] == "service_unavailable"
            assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
            assert int(reply.headers["content-length"]) == len(reply.body)
        assert refused(app) == 3
        assert active(app) == 5, "who is refused does not count"
    assert (await app.ask("GET", "/health")).status == 200


async def test_it_is_told_over_tls_too(application, certificate, monkeypatch):
    monkeypatch.setattr(crowd, "GUESTS", 0)
    app = await full(application, **certificate)
    async with open_connections(app, 4):
        assert Reply(await app.raw(HEALTH)).status == 503


async def test_nobody_stays_who_is_refused_or_says_nothing_as_a_guest(application, monkeypatch):
    monkeypatch.setattr(crowd, "GUESTS", 1)
    monkeypatch.setattr("smg.server.protocol.GUEST_SECONDS", 0.3)
    monkeypatch.setattr(crowd, "_LEAVING_SECONDS", 0.3)
    app = await full(application)
    async with open_connections(app, 4):
        guest, _ = await app.connect()
        refused_one, _ = await app.connect()
        assert await ends(guest) == b""
        assert (await ends(refused_one)).startswith(b"HTTP/1.1 503")
        assert (await app.ask("GET", "/health")).status == 200


async def test_of_very_many_who_are_refused_only_some_are_told_why(caplog):
    class Transport:
        written, aborted, protocol = b"", False, asyncio.Protocol()

        def write(self, data: bytes) -> None:
            self.written += data

        def abort(self) -> None:
            self.aborted = True

        def set_protocol(self, protocol: asyncio.Protocol) -> None:
            self.protocol = protocol

        def get_extra_info(self, name: str) -> tuple[str, int]:
            return ("192.0.2.7", 5000)

    one_crowd = Crowd(ServerSettings(max_connections=1), Metrics(LocalCells(), 1))
    crowds = [Transport() for _ in range(crowd._MOST_LEAVING + 2)]
    for transport in crowds:
        one_crowd.refuse(transport)
    assert [bool(transport.written) for transport in crowds] == [True] * crowd._MOST_LEAVING + [False] * 2
    assert [transport.aborted for transport in crowds[-2:]] == [True, True]
    for transport in crowds:
        transport.protocol.connection_lost(None)
    after = Transport()
    one_crowd.refuse(after)
    assert after.written
    [told] = caplog.records
    assert (told.client, told.refused, told.connections) == ("192.0.2.7", 1, 1), "not a line for each"


async def test_the_log_counts_those_it_has_not_told_of(monkeypatch, application, caplog):
    monkeypatch.setattr(crowd, "GUESTS", 0)
    monkeypatch.setattr(crowd, "_TELL_SECONDS", 0.0)
    app = await full(application)
    async with open_connections(app, 4):
        await app.raw(HEALTH)
        monkeypatch.setattr(app.app.ctx.crowd, "_untold", 5)
        await app.raw(HEALTH)
    told = [vars(record) for record in caplog.records if "max-connections" in record.message]
    assert [(each["client"], each["refused"]) for each in told] == [("127.0.0.1", 1), ("127.0.0.1", 6)]


@pytest.mark.parametrize(
    ("wanted", "files", "connections"),
    [
        (100, 20_000, 100),
        (10_000, 1024, 1024 - crowd.RESERVED),
        (0, 20_000, 20_000 - crowd.RESERVED),
        (10_000, resource.RLIM_INFINITY, 10_000),
    ],
)
def test_there_are_never_more_connections_than_files(monkeypatch, wanted, files, connections):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections(wanted) == connections


def test_members_come_before_guests_and_guests_before_the_rest():
    one = Crowd(ServerSettings(max_connections=10), Metrics(LocalCells(), 1))
    edges = [0, 9, 10, 10 + crowd.GUESTS - 1, 10 + crowd.GUESTS]
    assert [one.place(open) for open in edges] == [
        *(Place.MEMBER, Place.MEMBER, Place.GUEST, Place.GUEST, Place.REFUSED)
    ]


async def ends(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.read(), 5)


async def test_idle_connections_end_before_and_after_a_request(application):
    app = await application(server=ServerSettings(keep_alive_timeout_secs=0.2))
    silent, _ = await app.connect()
    assert await ends(silent) == b""
    reader, writer = await app.connect()
    writer.write(HEALTH)
    assert (await ends(reader)).endswith(b"\r\n\r\nOK")


async def test_a_running_answer_is_not_idle_however_long_it_takes(application):
    app = await application(server=ServerSettings(keep_alive_timeout_secs=0.1, header_timeout_secs=0.1))
    reader, writer = await app.connect()
    for path in (b"/stream?seconds=0.6", b"/buffered?seconds=0.6", b"/stream?seconds=0.1"):
        writer.write(b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), "the connection is used again"
        assert await reader.readuntil(b"slept" if b"buffered" in path else b"done\n\r\n0\r\n\r\n")
