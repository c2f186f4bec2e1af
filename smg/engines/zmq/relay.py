"""Shares an engine that knows one frontend among all processes of the gateway (spec engine-contract 6.6).

TokenSpeed's scheduler takes the first pair of addresses it is told, and that is the control process's. Control passes
requests on to the engine, and what the engine says to every process; each knows its own requests. To the others it
looks like an engine that has connected to all of them, so they need not know.
"""

from collections.abc import Callable, Mapping
from functools import partial

import zmq

from smg.engines.zmq.address import ZmqAddress
from smg.engines.zmq.handshake import identity
from smg.engines.zmq.port import Inbox


class Relay:
    """Connects to processes 1 to ``processes - 1`` as an engine whose ranks they get ``greetings`` of first, by number.

    ``send(rank, frames)`` passes a request on to a rank of the engine.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: ZmqAddress,
        processes: int,
        greetings: Mapping[int, bytes],
        send: Callable[[int, list[bytes]], None],
    ) -> None:
        self._outputs: list[zmq.Socket[bytes]] = []
        self._inboxes: list[Inbox] = []
        for process in range(1, processes):
            self._outputs.append(_connected(context.socket(zmq.PUSH), address.output(process), 0))
            for rank, greeting in greetings.items():
                requests = _connected(context.socket(zmq.DEALER), address.input(process), rank)
                requests.send(greeting, zmq.NOBLOCK)
                self._inboxes.append(Inbox(requests, partial(send, rank)))

    def spread(self, frames: list[bytes]) -> None:
        """Pass a message of the engine on to all processes."""
        for socket in self._outputs:
            try:
                socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                # That process is not there, and nobody waits for its requests.
                continue

    def close(self) -> None:
        """Disconnect. The other processes read what the engine has said, then it is gone. Idempotent."""
        for inbox in self._inboxes:
            inbox.close()
        for socket in self._outputs:
            socket.close(linger=1000)
        self._inboxes, self._outputs = [], []


def _connected(socket: "zmq.Socket[bytes]", endpoint: str, rank: int) -> "zmq.Socket[bytes]":
    socket.setsockopt(zmq.IDENTITY, identity(rank))
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.connect(endpoint)
    return socket
