"""Fixtures of the server tests; what they are made of is in ``server_harness.py``."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from smg.config import Settings
from smg.server.protocol import Connection
from smg.server.sockets import tls_context
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from tests.certificates import self_signed
from tests.server.server_harness import Application, Gateway, make_app


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The replacement that pytest-asyncio offers is not in the versions we allow.
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy."))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Server settings that turn TLS on, with a certificate made for this run."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """The workers' loop; its transports differ from asyncio's in what they notice and when."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def application() -> AsyncIterator[Callable[..., Any]]:
    """``await application(**groups)`` serves the small application on a free port."""
    servers = []

    async def start(**groups: Any) -> Application:
        settings = Settings(**groups)
        metrics = Metrics(LocalCells(), 1)
        app = make_app(settings, metrics)
        listener = socket.create_server(("127.0.0.1", 0))
        server = await app.create_server(
            sock=listener,
            protocol=Connection,
            ssl=tls_context(settings.server),
            asyncio_server_kwargs={"start_serving": False},
        )
        await server.startup()
        await server.start_serving()
        servers.append(server)
        return Application(app, listener.getsockname()[1], metrics, tls=settings.server.tls_cert_path is not None)

    yield start
    for server in servers:
        server.close()
        for connection in list(server.connections):
            connection.close()


@pytest.fixture
def gateway(tmp_path: Any) -> Iterator[Callable[..., Gateway]]:
    """``gateway(workers=2, …)`` starts processes; server settings are keywords."""
    running: list[Gateway] = []

    def start(control: Any = None, lifeline: Any = None, embedded: Any = None, **server: Any) -> Gateway:
        base = {"host": "127.0.0.1", "port": 0, "state_dir": str(tmp_path), "shutdown_settle_secs": 0.0, **server}
        tree: dict[str, Any] = {"server": base, "telemetry": {"log_level": "error"}}
        if embedded is not None:
            tree["embedded"] = embedded
        running.append(Gateway(msgspec.convert(tree, Settings), control=control, lifeline=lifeline))
        return running[-1]

    yield start
    for each in running:
        each.stop()
