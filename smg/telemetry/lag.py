"""How late the event loop runs its timers: the first sign of a blocking call."""

import asyncio

from smg.core import clock
from smg.telemetry.families import Histogram


class LagSampler:
    """Sleeps ``interval`` seconds again and again, and observes by how much each sleep was too long."""

    def __init__(self, histogram: Histogram, interval: float = 0.5) -> None:
        self._histogram = histogram
        self._interval = interval

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            before = clock.monotonic()
            await asyncio.sleep(self._interval)
            self._histogram.observe(clock.monotonic() - before - self._interval)
