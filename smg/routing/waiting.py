"""The line before admission: one for all processes of the gateway, first come first served (spec api-and-ops 4.5).

Who comes draws a ticket from the region, and each process shows there the lowest ticket that waits in it. A free place
goes to the lowest ticket shown; its process notices by itself when the place was freed in it, else by looking every few
milliseconds, as long as somebody waits in it. A killed process's tickets go with its row; one that is only stuck is
passed over after a few looks.
"""

import asyncio
from collections import deque
from typing import Protocol

from smg.core.errors import GatewayError

# Between two looks for a place that another process has freed.
LOOK_SECS = 0.005
# A place that the process whose turn it is has left free for so many looks goes to the next one.
PATIENCE_LOOKS = 4


class Tickets(Protocol):
    """The part of the region the line is kept in."""

    def waiting_add(self, process: int, delta: int) -> int: ...

    def waiting_total(self) -> int: ...

    def waiting_ticket(self) -> int: ...

    def waiting_head_set(self, process: int, ticket: int) -> None: ...

    def waiting_head(self) -> int: ...


class Places(Protocol):
    """What is waited for. ``take`` tells whether there was one."""

    def free(self) -> bool: ...

    def take(self) -> bool: ...

    def release(self) -> None: ...


class _Waiter:
    """One request in the line. ``place`` is done when it has a place, or fails when it has waited too long."""

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.place: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class WaitingLine:
    """The part of the line that waits in this process. ``size`` bounds the line of all processes together."""

    def __init__(self, tickets: Tickets, places: Places, process: int, size: int, seconds: float) -> None:
        self._tickets = tickets
        self._places = places
        self._process = process
        self._size = size
        self._seconds = seconds
        self._waiters: deque[_Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._passed = 0

    def occupied(self) -> bool:
        """Whether anybody waits, in whatever process: who comes now must not overtake."""
        return self._tickets.waiting_total() > 0

    def full(self) -> bool:
        """Whether nobody more may wait."""
        return self._tickets.waiting_total() >= self._size

    async def wait(self) -> None:
        """Wait for a place, at most ``seconds``; the caller has it when this returns.

        Raises:
            GatewayError: ``queue_full`` (429) at once, or ``queue_timeout`` (503); both with Retry-After.
        """
        # Count first, then compare: two processes that look before they count would both let one too many in.
        if self._tickets.waiting_add(self._process, 1) > self._size:
            self._tickets.waiting_add(self._process, -1)
            raise queue_full(self._size)
        waiter = _Waiter(self._tickets.waiting_ticket())
        self._waiters.append(waiter)
        self._show()
        timer = asyncio.get_running_loop().call_later(self._seconds, self._expire, waiter)
        try:
            await waiter.place
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        finally:
            timer.cancel()

    def advance(self) -> None:
        """Give free places to those whose turn it is."""
        while self._waiters:
            waiter = self._waiters[0]
            if waiter.place.done():
                self._remove(waiter)
            elif self._is_our_turn() and self._places.take():
                self._passed = 0
                self._remove(waiter)
                waiter.place.set_result(None)
            else:
                break

    def _is_our_turn(self) -> bool:
        return self._passed >= PATIENCE_LOOKS or self._waiters[0].ticket == self._tickets.waiting_head()

    def _look(self) -> None:
        self._timer = None
        if self._waiters:
            self._passed = self._passed + 1 if self._places.free() else 0
            self.advance()
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._waiters:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECS, self._look)

    def _show(self) -> None:
        self._tickets.waiting_head_set(self._process, self._waiters[0].ticket if self._waiters else 0)
        self._arm()

    def _remove(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            self._tickets.waiting_add(self._process, -1)
            self._show()

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.place.done():
            self._remove(waiter)
            waiter.place.set_exception(GatewayError("queue_timeout", "the request has waited too long for its turn"))

    def _leave(self, waiter: _Waiter) -> None:
        """The request is given up, in the worst case at the moment it has got its place."""
        self._remove(waiter)
        if waiter.place.cancelled() or waiter.place.exception() is not None:
            return
        self._places.release()
        self.advance()


def queue_full(size: int) -> GatewayError:
    """The error of who may not even wait."""
    return GatewayError("queue_full", f"too many requests are waiting (limit {size}); try again shortly")
