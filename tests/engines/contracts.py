"""The five contracts for tests: a mock engine and a driver of each, and the parts in which they differ."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from smg.engine_server.mock import CONTRACTS
from smg.engines.base import Adapter
from smg.engines.driver import GrpcDriver
from smg.engines.table import ADAPTERS, adapter
from smg.engines.transport.base import Transport
from smg.engines.transport.grpcio import GrpcioTransport

NAMES = list(ADAPTERS)


def having(feature: str) -> list[str]:
    """Names of the contracts that have ``feature``."""
    return [name for name in NAMES if feature in adapter(name).capabilities]


def lacking(feature: str) -> list[str]:
    return [name for name in NAMES if feature not in adapter(name).capabilities]


def message_class(contract: str, name: str) -> Any:
    """A generated class of the contract, by its bare name."""
    service = CONTRACTS[contract]().service
    return GetMessageClass(service.file.message_types_by_name[name])


def sent(made: Adapter, request: Any) -> Any:
    """The GenerateRequest an adapter makes of ``request``, read back."""
    return message_class(made.name, "GenerateRequest").FromString(made.generate(request))


@asynccontextmanager
async def driver_to(
    url: str, contract: str, transport: Callable[[str], Transport] = GrpcioTransport, **more: Any
) -> AsyncIterator[GrpcDriver]:
    """A driver; ``more`` are arguments of its own."""
    driver = GrpcDriver(url, adapter(contract), transport(url), **more)
    try:
        yield driver
    finally:
        await driver.close()
