"""Which contract does an address speak? (spec engine-contract 4.1)

The cheap GetServerInfo of every known service is asked on one connection; HealthCheck is never used for this, because
some engines generate a token to answer it.
"""

import asyncio
from collections.abc import Iterable

from smg.core.errors import GatewayError
from smg.engines.base import Adapter
from smg.engines.transport.base import Transport
from smg.engines.transport.errors import RpcError

PROBE_SECS = 2.0
# Head start of each service over the next, so that the common ones usually are the only ones asked.
_STAGGER_SECS = 0.05
# Statuses that come from the connection, not from the service.
_PROVES_NOTHING = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})


async def detect(transport: Transport, adapters: Iterable[Adapter], timeout: float = PROBE_SECS) -> str:
    """Return the name of the first adapter whose service is there. ``timeout`` bounds the whole probe, in seconds.

    UNIMPLEMENTED excludes a service; an answer or any status of the application proves it.

    Raises:
        GatewayError: ``worker_failed``: nobody answered (503), or none of the known services is there (502).
    """
    tasks = [
        asyncio.create_task(_ask(transport, adapter, place * _STAGGER_SECS, timeout))
        for place, adapter in enumerate(adapters)
    ]
    unreachable: RpcError | None = None
    try:
        async with asyncio.timeout(timeout):
            for done in asyncio.as_completed(tasks):
                name, error = await done
                if name is not None:
                    return name
                if error is not None:
                    unreachable = error
    except TimeoutError:
        raise GatewayError(
            "upstream_timeout", "the engine did not answer in time", detail=f"probe took {timeout} s", worker_fault=True
        ) from None
    finally:
        for task in tasks:
            task.cancel()
    if unreachable is not None:
        raise unreachable
    raise GatewayError("worker_failed", "the engine offers none of the known services", worker_fault=True)


async def _ask(
    transport: Transport, adapter: Adapter, delay: float, timeout: float
) -> tuple[str | None, RpcError | None]:
    """(name, None): the service is there; (None, None): it is not; (None, error): no saying."""
    await asyncio.sleep(delay)
    try:
        await transport.unary(f"/{adapter.service}/GetServerInfo", b"", timeout)
    except RpcError as error:
        if error.rpc == "UNIMPLEMENTED":
            return None, None
        if error.rpc in _PROVES_NOTHING:
            return None, error
    return adapter.name, None
