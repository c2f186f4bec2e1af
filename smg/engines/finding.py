"""Who answers at a worker's URL? By its scheme, and where it has none, by asking (spec engine-contract 4.1)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from smg.core.errors import GatewayError
from smg.engines.base import Driver
from smg.engines.driver import GrpcDriver
from smg.engines.http import address as http
from smg.engines.http.driver import HttpDriver
from smg.engines.probe import PROBE_SECS, detect
from smg.engines.table import ADAPTERS, adapter
from smg.engines.transport import address as grpc
from smg.engines.transport.base import Transport
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.zmq import address as zmq
from smg.engines.zmq.driver import ZmqDriver

# Number of the control process.
_CONTROL = 0

Scheme: TypeAlias = Literal["grpc", "http", "zmq", ""]


def scheme_of(url: str) -> Scheme:
    """What a URL says about how its engine is spoken to; empty: nothing.

    Raises:
        ValueError: it is no engine's URL.
    """
    named = url.partition("://")[0].lower() if "://" in url else ""
    if named in ("http", "https"):
        http.parse(url)
        return "http"
    if named in ("ipc", "zmq"):
        zmq.parse(url)
        return "zmq"
    if named not in ("", "grpc", "grpcs"):
        raise ValueError(f"{url!r}: the scheme must be grpc, grpcs, http, https, ipc or zmq")
    grpc.parse(url)
    return "grpc" if named else ""


class Finder:
    """Finds the driver for one URL, in control.

    ``runtime`` is the configured contract or kind of server, empty when it is to be found out; ``key`` the API key of
    an HTTP engine. ``labels`` are configured ones, and ``processes`` counts those of the gateway: for engine cores.

    Raises:
        ValueError: it is no engine's URL.
    """

    def __init__(
        self,
        url: str,
        runtime: str = "",
        key: str = "",
        labels: Mapping[str, str] | None = None,
        processes: int = 1,
        connect: Callable[[str], Transport] = GrpcioTransport,
    ) -> None:
        self.scheme = scheme_of(url)
        self._url = url
        self._runtime = runtime
        self._key = key
        self._labels = labels
        self._processes = processes
        self._connect = connect
        self._transport: Transport | None = None

    async def find(self) -> Driver:
        """Return the driver; the caller closes it. Raises GatewayError when nobody answers who is known."""
        if self.scheme == "http":
            return HttpDriver(self._url, self._runtime, self._key)
        if self.scheme == "zmq":
            return self._zmq()
        if self.scheme == "grpc":
            return await self._grpc()
        return await self._either()

    async def forget(self, driver: Driver) -> None:
        """``driver`` was wrong: another engine may be there now, whatever was configured by an earlier one."""
        self._runtime = ""
        if driver.kind == "raw":
            await driver.close()

    async def close(self) -> None:
        """Close what was opened for the search, the connection of a gRPC driver that was found included."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await transport.close()

    @property
    def connected(self) -> bool:
        """Whether the connection that the search has opened stands; False also where there is none."""
        return isinstance(self._transport, GrpcioTransport) and self._transport.connected

    def _opened(self) -> Transport:
        if self._transport is None:
            self._transport = self._connect(self._url)
        return self._transport

    def _zmq(self) -> Driver:
        try:
            return ZmqDriver(self._url, _CONTROL, self._processes, self._labels, runtime=self._runtime)
        except ValueError as error:
            message = "the sockets for the engine cannot be opened"
            raise GatewayError("worker_failed", message, detail=str(error), worker_fault=True) from None

    async def _grpc(self) -> Driver:
        transport = self._opened()
        name = self._runtime or await detect(transport, [make() for make in ADAPTERS.values()])
        return GrpcDriver(self._url, adapter(name), transport)

    async def _either(self) -> Driver:
        """Ask in both ways at once. HTTP wins, because a gRPC server can't be taken for one that answers /health."""
        transport = self._opened()
        driver = HttpDriver(self._url, self._runtime, self._key)
        try:
            adapters = [make() for make in ADAPTERS.values()]
            by_grpc = asyncio.ensure_future(detect(transport, adapters))
            by_http = asyncio.ensure_future(driver.health(PROBE_SECS))
            await asyncio.wait({by_grpc, by_http})
            if not by_http.cancelled() and by_http.exception() is None and by_http.result():
                by_grpc.exception()
                # It would go on trying to connect.
                await self.close()
                return driver
            found = GrpcDriver(self._url, adapter(by_grpc.result()), transport)
            await driver.close()
            return found
        except GatewayError:
            await driver.close()
            raise
