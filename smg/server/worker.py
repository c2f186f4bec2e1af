"""The body of a request worker: one event loop, one Sanic application, one inherited socket."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import uvloop
from sanic import Sanic
from sanic.server import AsyncioServer

from smg._native.region import Region
from smg.config import Settings
from smg.control.client import ControlClient
from smg.server.active import ActiveRequests
from smg.server.app import build_app
from smg.server.collector import Collector
from smg.server.protocol import Connection
from smg.server.sockets import BACKLOG, tls_context
from smg.telemetry.lag import LagSampler
from smg.telemetry.logs import quiet_library

log = logging.getLogger("smg.server")

_SANIC_LOGGERS = ("sanic.root", "sanic.error", "sanic.access", "sanic.server", "sanic.websockets")
# How long requests that were cut off may take for the end of their answers, and unsent bytes to leave.
_LAST_WORDS_SECONDS = 3.0
_FLUSH_SECONDS = 1.0
# How long a thread that prepares a long prompt or an image may keep the GIL once the event loop wants it (case PF-01;
# Python's own is 5 ms).
_SWITCH_SECONDS = 0.0005


def run(settings: Settings, region: Region, process: int, listener: socket.socket) -> int:
    """Serve until SIGTERM; returns the exit status. The whole of a forked process."""
    from smg.api.routes import Api
    from smg.pipeline.services import build

    async def body() -> None:
        services = build(settings, region, process)
        services.control = ControlClient(settings.server.state_dir, region.boot_id)
        services.view.begin()
        watch = asyncio.create_task(services.watch())
        try:
            await serve(build_app(services, settings, Api()), settings, region, listener)
        finally:
            watch.cancel()
            await services.close()

    return run_loop(body())


def run_loop(body: Coroutine[Any, Any, None]) -> int:
    """Run a coroutine on a new uvloop."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body)
    return 0


async def serve(app: Sanic[Any, Any], settings: Settings, region: Region, listener: socket.socket) -> None:
    """Serve ``app`` on ``listener``.

    SIGUSR1 begins the drain: readiness answers 503 and answers close their connection, but everything is served.
    SIGTERM stops accepting; returns when running requests are done or the grace period has cut them off.
    """
    os.environ.setdefault("SANIC_IGNORE_PRODUCTION_WARNING", "true")
    server = await app.create_server(
        sock=listener,
        protocol=Connection,
        ssl=tls_context(settings.server),
        backlog=BACKLOG,
        return_asyncio_server=True,
        asyncio_server_kwargs={"start_serving": False},
    )
    assert server is not None
    quiet_library(*_SANIC_LOGGERS)
    await server.startup()  # type: ignore[no-untyped-call]
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, drain, app)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if region.draining():
        drain(app)
    lag = asyncio.create_task(LagSampler(app.ctx.services.metrics.event_loop_lag_seconds).run())
    await server.before_start()  # type: ignore[no-untyped-call]
    collector = Collector()
    collector.begin()
    await server.start_serving()  # type: ignore[no-untyped-call]
    await server.after_start()  # type: ignore[no-untyped-call]
    try:
        await stop.wait()
        drain(app)
        await finish(app, server, settings.server.shutdown_grace_period_secs)
    finally:
        collector.end()
        lag.cancel()


def drain(app: Sanic[Any, Any]) -> None:
    """Say that this gateway is going away: readiness answers 503, clients are asked to connect anew."""
    app.ctx.services.draining = True
    app.config.KEEP_ALIVE = False
    for request in app.ctx.active:
        if request.stream is not None:
            request.stream.keep_alive = False


async def finish(app: Sanic[Any, Any], server: AsyncioServer, grace: float) -> None:
    """Accept nothing more and wait for the running requests, at most ``grace`` seconds; then cut them off."""
    active: ActiveRequests = app.ctx.active
    server.close()  # type: ignore[no-untyped-call]
    for connection in _connections(server):
        connection.finish()
    if not await active.wait_idle(grace):
        log.warning("the grace period is over, cutting off running requests", extra={"requests": len(active)})
        # Cancelled, not closed: streams end with their dialect's error event.
        for request in active:
            request.ctx.smg.cancel.cancel("shutdown")
        await active.wait_idle(_LAST_WORDS_SECONDS)
    for connection in _connections(server):
        connection.close(timeout=_FLUSH_SECONDS)
    await active.wait_idle(_FLUSH_SECONDS)


def _connections(server: AsyncioServer) -> Iterator[Connection]:
    for connection in list(server.connections):
        assert isinstance(connection, Connection)
        yield connection
