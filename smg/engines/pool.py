"""DriverPool: the drivers of one process, one per worker."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from smg.core.backends import BackendKind
from smg.core.errors import GatewayError
from smg.engines.driver import MESSAGE_LIMIT, GrpcDriver
from smg.engines.http.driver import HttpDriver
from smg.engines.table import adapter
from smg.engines.transport.base import Transport
from smg.engines.transport.grpcio import GrpcioTransport


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


class DriverPool:
    """Makes drivers on first use and keeps them until their worker leaves or changes.

    ``connect`` makes the transport to a URL; ``message_limit`` bounds what is sent for one generation, in bytes.
    """

    def __init__(
        self, connect: Callable[[str], Transport] = GrpcioTransport, message_limit: int = MESSAGE_LIMIT
    ) -> None:
        self._connect = connect
        self._message_limit = message_limit
        self._drivers: dict[str, GrpcDriver | HttpDriver] = {}

    def get(self, worker: Target) -> GrpcDriver:
        """Return the driver of a worker of kind ``tokens``.

        Raises:
            GatewayError: ``no_available_workers`` (503) while the worker's contract is not known.
        """
        driver = self._driver(worker)
        if not isinstance(driver, GrpcDriver):
            raise _unknown(f"{worker.url} takes no token ids")
        return driver

    def http(self, worker: Target) -> HttpDriver:
        """Return the driver of a worker of kind ``raw``. Raises GatewayError as ``get``."""
        driver = self._driver(worker)
        if not isinstance(driver, HttpDriver):
            raise _unknown(f"{worker.url} is no HTTP engine")
        return driver

    def retain(self, workers: Iterable[Target]) -> None:
        """Keep the drivers of these workers only; the others close once their generations are over."""
        wanted = {worker.id for worker in workers}
        for gone in [key for key in self._drivers if key not in wanted]:
            self._drivers.pop(gone).retire()

    async def close(self) -> None:
        """Close all drivers; running generations end with ``shutting_down``."""
        drivers, self._drivers = list(self._drivers.values()), {}
        await asyncio.gather(*(driver.close() for driver in drivers))

    def __len__(self) -> int:
        return len(self._drivers)

    def _driver(self, worker: Target) -> GrpcDriver | HttpDriver:
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

    def _make(self, worker: Target) -> GrpcDriver | HttpDriver:
        if worker.kind == "raw":
            return HttpDriver(worker.url, worker.runtime, worker.api_key)
        contract = adapter(worker.runtime)
        return GrpcDriver(worker.url, contract, self._connect(worker.url), self._message_limit)


def _fits(driver: GrpcDriver | HttpDriver, worker: Target) -> bool:
    """Whether the driver is still what the worker needs."""
    if (driver.url, driver.runtime, driver.kind) != (worker.url, worker.runtime, worker.kind):
        return False
    return not isinstance(driver, HttpDriver) or driver.key == worker.api_key


def _unknown(detail: str) -> GatewayError:
    message = "the engine is not known well enough to be used"
    return GatewayError("no_available_workers", message, detail=detail)
