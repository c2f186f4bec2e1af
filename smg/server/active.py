"""The requests a worker is handling at the moment."""

import asyncio
from collections.abc import Iterator

from sanic import Request


class ActiveRequests:
    """A set of requests that can be waited for to become empty."""

    def __init__(self) -> None:
        self._requests: set[Request] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests))

    def add(self, request: Request) -> None:
        """``request`` has begun."""
        self._requests.add(request)
        self._idle.clear()

    def discard(self, request: Request) -> None:
        """``request`` is over."""
        self._requests.discard(request)
        if not self._requests:
            self._idle.set()

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until there is none, at most ``timeout`` seconds; returns whether there is none."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return False
        return True
