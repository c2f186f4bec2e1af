"""Bytes that keep a silent stream open through proxies (field case RL-06)."""

import asyncio
import contextlib
from collections.abc import Callable

from smg.api.sink import ResponseSink


class KeepAlive:
    """Sends ``data()`` whenever ``sink`` has been silent for ``interval`` seconds (0: never), until ``stop``.

    One timer per stream, no task while data flows. Nothing is sent to a client that does not read what it has.
    """

    def __init__(self, sink: ResponseSink, interval: float, data: Callable[[], bytes]) -> None:
        self._sink = sink
        self._data = data
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(interval, self._tick) if interval else None

    def stop(self) -> None:
        """Send nothing more; one that waits for a slow client goes ahead of what is sent later. Idempotent."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        due = self._sink.last_sent + self._interval - self._loop.time()
        if due <= 0 and not self._sink.busy:
            self._task = self._loop.create_task(self._send())
        self._timer = self._loop.call_later(due if due > 0 else self._interval, self._tick)

    async def _send(self) -> None:
        if self._stopped:
            return
        self._sink.write(self._data())
        # The handler's task hears of a client that has gone by itself.
        with contextlib.suppress(ConnectionError):
            await self._sink.drain()
