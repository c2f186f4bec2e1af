"""A small application over the real layers, and gateways of real processes around it."""

import asyncio
import contextlib
import gc
import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from sanic import Request, Sanic
from sanic.response import HTTPResponse

from smg._native.region import Region
from smg.config import Settings
from smg.core.errors import GatewayError, anthropic_shape, openai_shape
from smg.server.app import build_app
from smg.server.supervisor import Supervisor
from smg.server.worker import run_loop, serve
from smg.telemetry.metrics import Metrics
from smg.telemetry.page import render

# Sanic optimises its own classes once per process, unless it knows that more applications follow.
Sanic.test_mode = True


async def alive(request: Request) -> HTTPResponse:
    return HTTPResponse(b"OK")


async def readiness(request: Request) -> HTTPResponse:
    return HTTPResponse(b"{}", 503 if request.app.ctx.services.draining else 200)


async def pid(request: Request) -> HTTPResponse:
    return HTTPResponse(str(os.getpid()))


async def echo(request: Request) -> HTTPResponse:
    ctx = request.ctx.smg
    ctx.notes["model"] = "m"
    body = {"size": len(request.body), "principal": ctx.principal.name, "id": ctx.request_id}
    return HTTPResponse(msgspec.json.encode(body))


async def broken(request: Request) -> HTTPResponse:
    raise ValueError("a secret path")


async def broken_stream(request: Request) -> None:
    response = await request.respond(content_type="text/plain")
    await response.send("begun")
    raise ValueError("a secret path")


async def stream(request: Request) -> None:
    """``seconds`` long, a line each 50 ms; the last one says that it is whole, or why it is not."""
    response = await request.respond(content_type="text/plain")
    until = time.monotonic() + float(request.args.get("seconds", "0.2"))
    cancel = request.ctx.smg.cancel
    while time.monotonic() < until and not cancel:
        await response.send("line\n")
        await asyncio.sleep(0.05)
    await response.send(f"error {cancel.reason}\n" if cancel else "done\n")
    await response.eof()


async def slow_end(request: Request) -> None:
    """A whole answer, after which there is still something to do; then the notes of a handler whose client leaves."""
    response = await request.respond(content_type="text/plain")
    await response.send("all of it")
    await response.eof()
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        request.ctx.smg.notes["error"] = "client_disconnected"
        raise


async def buffered(request: Request) -> HTTPResponse:
    """Sleeps; what happens to it is told in ``app.ctx.story``."""
    story = request.app.ctx.story
    story.append("started")
    request.ctx.smg.cancel.on_cancel(lambda reason: story.append(f"told {reason}"))
    try:
        await asyncio.sleep(float(request.args.get("seconds", "30")))
    except asyncio.CancelledError:
        story.append("cancelled")
        raise
    return HTTPResponse(b"slept")


async def parameter(request: Request, name: str) -> HTTPResponse:
    return HTTPResponse(name)


async def metrics_page(request: Request) -> HTTPResponse:
    return HTTPResponse(render(request.app.ctx.services.metrics))


def route(method: str, path: str, handler: Any, access: str = "public", dialect: Any = None) -> SimpleNamespace:
    return SimpleNamespace(method=method, path=path, handler=handler, access=access, dialect=dialect)


ROUTES = [
    route("GET", "/health", alive),
    route("GET", "/readiness", readiness),
    route("GET", "/metrics", metrics_page),
    route("GET", "/pid", pid),
    route("POST", "/echo", echo),
    route("GET", "/broken", broken),
    route("GET", "/broken-stream", broken_stream),
    route("GET", "/stream", stream),
    route("POST", "/stream", stream),
    route("GET", "/slow-end", slow_end),
    route("GET", "/buffered", buffered),
    route("POST", "/buffered", buffered),
    route("GET", "/v1/models/<name:path>", parameter),
    route("POST", "/v1/messages", echo, "data", "messages"),
    route("POST", "/flush_cache", echo, "admin"),
]


class SmallApi:
    """A route table of which one route belongs to a dialect."""

    routes = ROUTES

    def naming(self, path: str) -> tuple[str, str]:
        return ("msg_", "messages") if path == "/v1/messages" else ("req-", "other")

    def error_response(self, request: Request, error: GatewayError) -> HTTPResponse:
        of_dialect = request.route is not None and request.route.ctx.dialect == "messages"
        shape = anthropic_shape(error, request.ctx.smg.request_id) if of_dialect else openai_shape(error)
        request.ctx.smg.notes["error"] = error.code
        return HTTPResponse(msgspec.json.encode(shape), error.status, error.headers(), "application/json")


def make_app(settings: Settings, metrics: Metrics) -> Any:
    app = build_app(SimpleNamespace(metrics=metrics, draining=False), settings, SmallApi())
    app.ctx.story = []
    return app


class Application:
    """The application in the test's own event loop."""

    def __init__(self, app: Any, port: int, metrics: Metrics, *, tls: bool = False) -> None:
        self.app = app
        self._tls = ssl._create_unverified_context() if tls else None
        self.port = port
        self.metrics = metrics

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self._tls)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes, return everything until the server closes."""
        reader, writer = await self.connect()
        writer.write(request)
        data = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return data

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> "Reply":
        lines = [f"{method} {path} HTTP/1.1", "Host: t", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return Reply(await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body))

    def samples(self, name: str) -> dict[tuple[str, ...], int]:
        out = {}
        for key, _, value in self.metrics.cells.read_series():
            sample, *labels = key.decode().split("\0")
            if sample == name:
                out[tuple(labels)] = value
        return out

    async def idle(self) -> None:
        assert await self.app.ctx.active.wait_idle(5)


class Reply:
    """A parsed HTTP answer."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        self.status = int(status.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Gateway:
    """A supervisor in a process of its own, with real workers around the small application."""

    def __init__(self, settings: Settings, *, control: Any = None, lifeline: tuple[int, int] | None = None) -> None:
        self.directory = settings.server.state_dir
        reader, writer = os.pipe()
        # What waits for threads when it is freed must not be left to a process that has none of them.
        gc.collect()
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                os.close(reader)
                if lifeline is not None:
                    os.close(lifeline[1])
                supervisor = Supervisor(
                    settings,
                    control or sleeping_control,
                    worker_body,
                    lifeline=None if lifeline is None else lifeline[0],
                    on_listening=lambda port: tell(writer, port, supervisor.region.fd),
                )
                status = supervisor.run()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writer)
        self.status: int | None = None
        with os.fdopen(reader) as pipe:
            port, region = json.loads(pipe.readline())
        self.port = int(port)
        copy = os.open(f"/proc/{self.pid}/fd/{region}", os.O_RDWR)
        self.region = Region.attach(copy)
        os.close(copy)

    def ask(self, method: str, path: str, timeout: float = 10.0) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float = 15.0) -> int:
        """Wait for the supervisor's end; returns its exit code (negative: the signal)."""
        if self.status is None:
            until = time.monotonic() + timeout
            while True:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.status = os.waitstatus_to_exitcode(status)
                    break
                assert time.monotonic() < until, "the supervisor does not end"
                time.sleep(0.01)
        return self.status

    def pids(self) -> list[int]:
        """Process ids of control and the workers; 0 for one that is not there."""
        return [self.region.process_pid(row) for row in range(self.region.processes - 1)]

    def stop(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.region.close()


def tell(writer: int, *numbers: int) -> None:
    os.write(writer, json.dumps(numbers).encode() + b"\n")
    os.close(writer)


def sleeping_control(settings: Settings, region: Region, urls: Any) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()


def worker_body(settings: Settings, region: Region, process: int, listener: socket.socket) -> int:
    async def body() -> None:
        await serve(make_app(settings, Metrics(region, process)), settings, region, listener)

    return run_loop(body())


def eventually(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Wait until ``condition`` is true (an OSError counts as false); fails after ``seconds``."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            result = condition()
            if result:
                return result
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)
