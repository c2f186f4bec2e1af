"""MockEngine: a scriptable engine of any contract on a real gRPC port, inside the calling process."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import msgspec
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from smg.core import clock
from smg.engine_server import serve
from smg.engine_server.mock.pair import Pair
from smg.engine_server.mock.script import Script
from smg.engine_server.mock.servicer import MockServicer, Recorded
from smg.engine_server.mock.table import CONTRACTS
from smg.engine_server.mock.transfer import Role

SERVICE = "vllm.grpc.engine.VllmEngine"


class MockEngine:
    """A mock engine::

        async with MockEngine(Script.text("Hello!")) as engine:
            channel = grpc.aio.insecure_channel(engine.address)

    ``contract`` is a name of ``mock.table``. ``port`` 0 picks a free one; ``default_sampling`` becomes
    ``default_sampling_params_json``; without ``generates`` the model only embeds. A stopped or killed
    engine can be started again; it then listens on the same port and keeps its records. ``role`` makes it one engine of
    a disaggregated fleet; a prefill or encode engine hands over at ``bootstrap_port`` (0 picks one), and one of the
    vLLM contract in the way of ``connector``.
    """

    def __init__(
        self,
        script: Script = Script(),  # noqa: B008 - frozen
        port: int = 0,
        *,
        contract: str = "vllm",
        host: str = "127.0.0.1",
        model: str = "mock-model",
        context_length: int = 32768,
        default_sampling: Mapping[str, float] | None = None,
        generates: bool = True,
        role: Role = "regular",
        bootstrap_port: int = 0,
        connector: str = "NixlConnector",
    ) -> None:
        sampling = msgspec.json.encode(default_sampling).decode() if default_sampling else ""
        self._pair = Pair(role, host, bootstrap_port, connector if role != "regular" else "")
        self._servicer = MockServicer(
            CONTRACTS[contract](), script, model, context_length, sampling, generates, self._pair
        )
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._host = host
        self._port = port
        self._server: grpc.aio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what tests look at

    @property
    def service(self) -> str:
        """Full name of the contract's service."""
        return str(self._servicer.contract.service.full_name)

    @property
    def address(self) -> str:
        """``host:port``, valid after ``start``."""
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """``grpc://host:port``, as the gateway wants it."""
        return "grpc://" + self.address

    @property
    def requests(self) -> list[Recorded]:
        """Every Generate call so far, oldest first."""
        return self._servicer.requests

    @property
    def aborted(self) -> list[str]:
        """Every id an Abort RPC named, in order, known or not."""
        return self._servicer.aborted

    @property
    def encoded(self) -> list[Any]:
        """Every EncodeRequest so far, oldest first."""
        return self._servicer.encoded

    @property
    def running(self) -> int:
        """Generate calls in progress."""
        return self._servicer.running

    @property
    def bootstrap_port(self) -> int:
        """Where a prefill or encode engine hands over, valid after ``start``."""
        return self._pair.transfers.port

    @property
    def engine_id(self) -> str:
        """The id decode engines must know a prefill engine by, where their contract has ids."""
        return self._pair.transfers.engine

    @property
    def connector(self) -> str:
        """How an engine of a pair hands over, as vLLM's name their ways."""
        return self._pair.connector

    @property
    def held(self) -> int:
        """Prompts a prefill engine keeps for decode engines that have not fetched them.

        Embeddings that nobody fetches are not counted: their contract has no way to tell an encode engine so.
        """
        return self._pair.transfers.held if self._pair.role == "prefill" else 0

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        clients = set()
        for connection in self._connections():
            clients.add(connection.getpeername())
            connection.close()
        return len(clients)

    @property
    def calls(self) -> Mapping[str, int]:
        """Calls per RPC since the script was set."""
        return self._servicer.calls

    @property
    def script(self) -> Script:
        return self._servicer.script

    @script.setter
    def script(self, script: Script) -> None:
        self._servicer.reset(script)
        if self._server is not None:
            self._spawn_health()

    # -- life

    async def start(self) -> str:
        """Listen and return the address. Raises RuntimeError when the port is taken."""
        if self._server is not None:
            raise RuntimeError("the mock engine is already running")
        server = grpc.aio.server(options=serve.GRPC_OPTIONS)
        server.add_generic_rpc_handlers(self._servicer.handlers())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self._port = server.add_insecure_port(f"{self._host}:{self._port}")
        self._servicer.started = clock.monotonic()
        await server.start()
        await self._pair.start()
        self._server = server
        self._spawn_health()
        return self.address

    async def stop(self, grace: float | None = None) -> None:
        """Stop listening; running calls get ``grace`` seconds (None: they are cancelled now).

        Idempotent; a second call while the first one waits can shorten its grace.
        """
        await self._pair.stop()
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None
        for task in self._tasks:
            task.cancel()

    async def kill(self) -> None:
        """Cut every connection without GOAWAY or trailers, as a crashed process does, then stop."""
        for connection in self._connections():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        await self.stop()

    async def __aenter__(self) -> "MockEngine":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _connections(self) -> list[socket.socket]:
        """Duplicates of this server's accepted sockets, found among the process's descriptors."""
        out = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if not os.readlink(Path("/proc/self/fd") / name).startswith("socket:"):
                    continue
                candidate = socket.socket(fileno=os.dup(int(name)))
                if self._is_ours(candidate):
                    out.append(candidate)
                else:
                    candidate.close()
        return out

    def _is_ours(self, candidate: socket.socket) -> bool:
        if candidate.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            candidate.getpeername()
        except OSError:
            return False
        return bool(candidate.getsockname()[1] == self._port)

    def _spawn_health(self) -> None:
        task = asyncio.get_running_loop().create_task(self._publish_health())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish_health(self) -> None:
        """Tell grpc.health.v1 what the script says, again when the start-up delay is over."""
        await self._set_health()
        remaining = self._servicer.started + self.script.startup_delay - clock.monotonic()
        if remaining > 0:
            await asyncio.sleep(remaining)
            await self._set_health()

    async def _set_health(self) -> None:
        up = self.script.serving and self.script.healthy and self._servicer.ready
        status = health_pb2.HealthCheckResponse.SERVING if up else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", self.service):
            await self._health.set(service, status)
