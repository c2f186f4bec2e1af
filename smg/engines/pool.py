"""DriverPool: the drivers of one process, one per worker."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeAlias

from smg.core.backends import BackendKind
from smg.core.background import background
from smg.core.errors import GatewayError
from smg.engines.base import EngineLoad
from smg.engines.driver import GrpcDriver
from smg.engines.http.driver import HttpDriver
from smg.engines.parcel import TensorTransport
from smg.engines.table import adapter
from smg.engines.transport.base import MESSAGE_LIMIT, Connect
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.zmq.driver import ZmqDriver

log = logging.getLogger("smg.engines")

# How URLs of engine cores begin.
_CORES = ("ipc://", "zmq://")


class Target(Protocol):
    """What the pool reads of a worker record."""

    @property
    def id(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def runtime(self) -> str: ...

    @property
    def kind(self) -> BackendKind: ...

    @property
    def api_key(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def slot(self) -> int: ...


PoolDriver: TypeAlias = GrpcDriver | HttpDriver | ZmqDriver


class DriverPool:
    """Makes drivers on first use and keeps them until their worker leaves or changes.

    ``connect`` makes the transport to a URL; ``message_limit`` bounds a message to or from an engine, in bytes;
    ``process`` is this process's number. ``on_load`` is told loads that engines send by themselves. ``tensors`` says
    which way media go.
    """

    def __init__(
        self,
        connect: Connect = GrpcioTransport,
        message_limit: int = MESSAGE_LIMIT,
        process: int = 1,
        on_load: Callable[[Target, EngineLoad], None] | None = None,
        tensors: TensorTransport | None = None,
    ) -> None:
        self._connect = connect
        self._message_limit = message_limit
        self._process = process
        self._on_load = on_load
        self._tensors = tensors or TensorTransport()
        self._drivers: dict[str, PoolDriver] = {}

    def get(self, worker: Target) -> GrpcDriver | ZmqDriver:
        """Return the driver of a worker of kind ``tokens``.

        Raises:
            GatewayError: ``no_available_workers`` (503) while the worker's contract is not known.
        """
        driver = self._driver(worker)
        if isinstance(driver, HttpDriver):
            raise _unknown(f"{worker.url} takes no token ids")
        return driver

    def grpc(self, worker: Target) -> GrpcDriver:
        """Return the driver of a worker with a gRPC contract, which alone has embeddings, pairs and encoders.

        Raises:
            GatewayError: as ``get``.
        """
        driver = self._driver(worker)
        if not isinstance(driver, GrpcDriver):
            raise _unknown(f"{worker.url} has no gRPC contract")
        return driver

    def http(self, worker: Target) -> HttpDriver:
        """Return the driver of a worker of kind ``raw``. Raises GatewayError as ``get``."""
        driver = self._driver(worker)
        if not isinstance(driver, HttpDriver):
            raise _unknown(f"{worker.url} is no HTTP engine")
        return driver

    def retain(self, workers: Iterable[Target]) -> None:
        """Keep the drivers of these workers only; the others close once their generations are over.

        Engine cores connect to us: for them there has to be a driver before the first request.
        """
        wanted = {worker.id: worker for worker in workers}
        for gone in [key for key in self._drivers if key not in wanted]:
            self._drivers.pop(gone).retire()
        for worker in wanted.values():
            if worker.url.startswith(_CORES):
                try:
                    self._driver(worker)
                except GatewayError as error:
                    log.error("engine core cannot be served", extra={"worker": worker.url, "error": error.detail})

    async def close(self) -> None:
        """Close all drivers; running generations end with ``shutting_down``."""
        drivers, self._drivers = list(self._drivers.values()), {}
        await asyncio.gather(*(driver.close() for driver in drivers))
        await background(self._tensors.close)

    def __len__(self) -> int:
        return len(self._drivers)

    def _driver(self, worker: Target) -> PoolDriver:
        found = self._drivers.get(worker.id)
        if found is not None:
            if _fits(found, worker):
                return found
            found.retire()
            del self._drivers[worker.id]
        try:
            driver = self._make(worker)
        except ValueError as error:
            raise _unknown(str(error)) from None
        self._drivers[worker.id] = driver
        return driver

    def _make(self, worker: Target) -> PoolDriver:
        if worker.url.startswith(_CORES):
            on_load = None if self._on_load is None else partial(self._on_load, worker)
            return ZmqDriver(worker.url, self._process, labels=worker.labels, on_load=on_load, runtime=worker.runtime)
        if worker.kind == "raw":
            return HttpDriver(worker.url, worker.runtime, worker.api_key)
        contract = adapter(worker.runtime)
        connection = self._connect(worker.url)
        return GrpcDriver(worker.url, contract, connection, self._message_limit, self._tensors, worker.labels)


def _fits(driver: PoolDriver, worker: Target) -> bool:
    """Whether the driver is still what the worker needs."""
    if isinstance(driver, ZmqDriver):
        driver.relabel(worker.labels, worker.runtime)
        return driver.url == worker.url
    if (driver.url, driver.runtime, driver.kind) != (worker.url, worker.runtime, worker.kind):
        return False
    if isinstance(driver, HttpDriver):
        return driver.key == worker.api_key
    driver.relabel(worker.labels)
    return True


def _unknown(detail: str) -> GatewayError:
    message = "the engine is not known well enough to be used"
    return GatewayError("no_available_workers", message, detail=detail)
