"""Running an engine as a process: the ready line, signals, the tie to a parent."""

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1

# Options of every engine's gRPC server. Gateways ping every 30 s, also when no call is open; a server's own rules
# would answer that with GOAWAY (too_many_pings), and what a ping costs is no reason to lose a connection.
GRPC_OPTIONS: list[tuple[str, int]] = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class Engine(Protocol):
    """A gRPC engine that can be started and stopped."""

    async def start(self) -> str:
        """Listen and return ``host:port``. Raises RuntimeError when that can't be."""
        ...

    async def stop(self, grace: float | None = None) -> None: ...


async def run(engine: Engine, grace: float, facts: Callable[[], Mapping[str, Any]]) -> None:
    """Start ``engine``, print the ready line and serve until SIGTERM or SIGINT.

    The ready line is one JSON object on stdout, ``{"ready": "host:port", **facts()}``. Running calls have ``grace``
    seconds to finish; a second signal ends them at once. Raises RuntimeError when the port is taken.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    insisted = asyncio.Event()

    def on_signal() -> None:
        (insisted if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    address = await engine.start()
    sys.stdout.write(json.dumps({"ready": address, **facts()}) + "\n")
    sys.stdout.flush()

    await asked.wait()
    stopping = asyncio.ensure_future(engine.stop(grace))
    impatient = asyncio.ensure_future(insisted.wait())
    await asyncio.wait({stopping, impatient}, return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    if not stopping.done():
        await engine.stop(0)
    await stopping


def die_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent process dies (Linux).

    Raises:
        RuntimeError: the parent has just gone, or the kernel refuses.
    """
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise RuntimeError(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have died around the call above, in which case no signal ever comes.
    if os.getppid() != parent:
        raise RuntimeError("the parent process is gone")
