"""The requests a worker is handling at the moment."""

import asyncio
from collections.abc import Iterator

from sanic import Request


class ActiveRequests:
    """A set of requests that can be waited for to become empty."""

    def __init__(self) -> None:
        self._requests: set[Request] = set()
        # Of who waits for the end of all, which is at the end of the process.
        self._idle: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests))

    def add(self, request: Request) -> None:
        """``request`` has begun."""
        self._requests.add(request)
        if self._idle is not None:
            self._idle.clear()

    def discard(self, request: Request) -> None:
        """``request`` is over."""
        self._requests.discard(request)
        if self._idle is not None and not self._requests:
            self._idle.set()

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until there is none, at most ``timeout`` seconds; returns whether there is none."""
        if self._idle is None:
            self._idle = asyncio.Event()
            if not self._requests:
                self._idle.set()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True
