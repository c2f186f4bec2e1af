"""Which contract does an address speak? (spec engine-contract 4.1)

The cheap GetServerInfo of every known service is asked on one connection; HealthCheck is never used for this, because
some engines generate a token to answer it.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from smg.core.errors import GatewayError
from smg.engines.base import Adapter
from smg.engines.transport.base import Transport
from smg.engines.transport.errors import RpcError

PROBE_SECS = 2.0
# Head start of each service over the next, which is asked at once when an answer has excluded the one before.
_STAGGER_SECS = 0.05
# Statuses that come from the connection, not from the service.
_PROVES_NOTHING = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})


async def detect(transport: Transport, adapters: Iterable[Adapter], timeout: float = PROBE_SECS) -> str:
    """Return the name of the first adapter whose service is there. ``timeout`` bounds the whole probe, in seconds.

    UNIMPLEMENTED excludes a service and an answer proves it. Any other status of the application makes it likely,
    unless another service answers: behind a proxy (Caddy) grpcio may read UNIMPLEMENTED as UNKNOWN.

    Raises:
        GatewayError: ``worker_failed``: nobody answered (503), or none of the known services is there (502).
    """
    waiting = list(adapters)
    asked: set[asyncio.Task[_Finding]] = set()
    unreachable: RpcError | None = None
    likely: str | None = None
    try:
        async with asyncio.timeout(timeout):
            while waiting or asked:
                if waiting:
                    asked.add(asyncio.create_task(_ask(transport, waiting.pop(0), timeout)))
                patience = _STAGGER_SECS if waiting else None
                done, asked = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for finding in [task.result() for task in done]:
                    if finding.name is not None and finding.answered:
                        return finding.name
                    likely = likely or finding.name
                    unreachable = finding.error or unreachable
    except TimeoutError:
        if likely is not None:
            return likely
        raise GatewayError(
            "upstream_timeout", "the engine did not answer in time", detail=f"probe took {timeout} s", worker_fault=True
        ) from None
    finally:
        for task in asked:
            task.cancel()
    if likely is not None:
        return likely
    if unreachable is not None:
        raise unreachable
    raise GatewayError("worker_failed", "the engine offers none of the known services", worker_fault=True)


class _Finding(msgspec.Struct, frozen=True):
    """``name`` is set: its service is there, for sure if it ``answered``. ``error`` is set: no saying."""

    name: str | None = None
    answered: bool = False
    error: RpcError | None = None


async def _ask(transport: Transport, adapter: Adapter, timeout: float) -> _Finding:
    try:
        await transport.unary(f"/{adapter.service}/GetServerInfo", b"", timeout)
    except RpcError as error:
        if error.rpc == "UNIMPLEMENTED":
            return _Finding()
        if error.rpc in _PROVES_NOTHING:
            return _Finding(error=error)
        return _Finding(name=adapter.name)
    return _Finding(name=adapter.name, answered=True)
