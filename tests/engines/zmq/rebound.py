"""A driver on a port that another one has just closed."""

import asyncio
import contextlib
from collections.abc import Callable

from smg.engines.zmq.driver import ZmqDriver


async def rebound(make: Callable[[], ZmqDriver]) -> ZmqDriver:
    """Call ``make`` until the closed socket has let go of its port, which it does in a thread of the library."""
    async with asyncio.timeout(5):
        while True:
            with contextlib.suppress(ValueError):
                return make()
            await asyncio.sleep(0.01)
