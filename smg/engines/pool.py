"""DriverPool: the drivers of one process, one per worker."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from smg.core.errors import GatewayError
from smg.engines.driver import GrpcDriver
from smg.engines.table import adapter
from smg.engines.transport.base import MESSAGE_LIMIT, Connect
from smg.engines.transport.grpcio import GrpcioTransport


class Target(Protocol):
    """What the pool reads of a worker record."""

    @property
    def id(self) -> str: ...

    @property
    def url(self) -> str: ...

    @property
    def runtime(self) -> str: ...


class DriverPool:
    """Makes drivers on first use and keeps them until their worker leaves or changes.

    ``connect`` makes the transport to a URL; ``message_limit`` bounds a message to or from an engine, in bytes.
    """

    def __init__(self, connect: Connect = GrpcioTransport, message_limit: int = MESSAGE_LIMIT) -> None:
        self._connect = connect
        self._message_limit = message_limit
        self._drivers: dict[str, GrpcDriver] = {}

    def get(self, worker: Target) -> GrpcDriver:
        """Return the worker's driver.

        Raises:
            GatewayError: ``no_available_workers`` (503) while the worker's contract is not known.
        """
        found = self._drivers.get(worker.id)
        if found is not None:
            if found.url == worker.url and found.adapter.name == worker.runtime:
                return found
            found.retire()
            del self._drivers[worker.id]
        try:
            connection = self._connect(worker.url, message_limit=self._message_limit)
            driver = GrpcDriver(worker.url, adapter(worker.runtime), connection, self._message_limit)
        except ValueError as error:
            raise GatewayError(
                "no_available_workers", "the engine is not known well enough to be used", detail=str(error)
            ) from None
        self._drivers[worker.id] = driver
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
