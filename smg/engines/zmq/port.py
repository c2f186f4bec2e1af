"""The sockets of one process of the gateway, on its event loop: requests out (ROUTER), outputs in (PULL)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from smg.core.errors import GatewayError
from smg.engines.zmq.address import ZmqAddress, clear, prepare

# Messages read in a row before other work gets its turn.
_AT_ONCE = 64
# Frames of a message without tensors: its type and its payload.
_SMALL = 2


class Inbox:
    """Calls ``take(frames)`` for every message of ``socket``, on the running loop, until ``close``."""

    def __init__(self, socket: "zmq.Socket[bytes]", take: Callable[[list[bytes]], None]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self.look)
        # The descriptor tells of changes only: what was there before has to be looked for.
        self._again: asyncio.Handle | None = self._loop.call_soon(self.look)

    def look(self) -> None:
        """Read what is there. Also to be called after each send on the socket, which may swallow the wake-up."""
        self._again = None
        for _ in range(_AT_ONCE):
            if self._socket.closed:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(frames)
        self._again = self._loop.call_soon(self.look)

    def close(self) -> None:
        """Read no more and close the socket."""
        self._loop.remove_reader(self._descriptor)
        if self._again is not None:
            self._again.cancel()
        self._socket.close(linger=0)


class Port:
    """One process's two sockets at ``address``; ``take(frames)`` gets the engine's outputs, ``greet(frames)`` what it
    says when it connects. ``lost()`` is called when its connection has ended: who dies does not always say so.

    Raises:
        OSError: the sockets cannot be bound.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: ZmqAddress,
        process: int,
        take: Callable[[list[bytes]], None],
        greet: Callable[[list[bytes]], None],
        lost: Callable[[], None],
    ) -> None:
        prepare(address)
        self._router = context.socket(zmq.ROUTER)
        # Sending to an engine that is not there has to fail, not to vanish.
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._router.setsockopt(zmq.SNDHWM, 0)
        pull = context.socket(zmq.PULL)
        pull.setsockopt(zmq.RCVHWM, 0)
        try:
            for socket, endpoint in ((self._router, address.input(process)), (pull, address.output(process))):
                clear(endpoint)
                socket.bind(endpoint)
        except (OSError, zmq.ZMQError):
            self._router.close(linger=0)
            pull.close(linger=0)
            raise
        self._greet = greet
        self._lost = lost
        self._events = Inbox(self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED), self._disconnected)
        self._greetings = Inbox(self._router, self._greeted)
        self._outputs = Inbox(pull, take)

    def send(self, identity: bytes, frames: Sequence[Any]) -> None:
        """Send one message. Buffers behind its first two frames are tensors, which are not copied.

        Raises:
            GatewayError: ``worker_failed`` (503): no such engine is connected.
        """
        self._greetings.look()
        try:
            self._router.send_multipart([identity, *frames], zmq.NOBLOCK, copy=len(frames) <= _SMALL)
        except zmq.ZMQError as error:
            raise GatewayError(
                "worker_failed", "the engine is not reachable", status=503, detail=str(error), worker_fault=True
            ) from None
        finally:
            self._greetings.look()

    def close(self) -> None:
        """Close both sockets. Idempotent."""
        if self._router.closed:
            return
        self._router.disable_monitor()
        for inbox in (self._events, self._greetings, self._outputs):
            inbox.close()

    def _greeted(self, frames: list[bytes]) -> None:
        # That the one before has gone must not be heard after its successor has come: it would be taken for gone.
        self._events.look()
        self._greet(frames)

    def _disconnected(self, _event: list[bytes]) -> None:
        # What the engine has still said counts.
        self._outputs.look()
        self._lost()
