"""Shares an engine that knows one frontend among all processes of the gateway (spec engine-contract 6.6).

TokenSpeed's scheduler takes the first pair of addresses it is told, and that is the control process's. Control passes
requests on to the engine, and what the engine says to every process; each knows its own requests. To the others it
looks like an engine that has connected to all of them, so they need not know.
"""

from collections.abc import Callable

import zmq

from smg.engines.zmq.address import ZmqAddress
from smg.engines.zmq.port import Inbox


class Relay:
    """Connects to processes 1 to ``processes - 1`` as an engine with ``identity``, whose ``greeting`` they get first.

    ``send(frames)`` passes a request on to the engine.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        address: ZmqAddress,
        processes: int,
        identity: bytes,
        greeting: bytes,
        send: Callable[[list[bytes]], None],
    ) -> None:
        self._outputs: list[zmq.Socket[bytes]] = []
        self._inboxes: list[Inbox] = []
        for process in range(1, processes):
            requests = context.socket(zmq.DEALER)
            outputs = context.socket(zmq.PUSH)
            for socket, endpoint in ((requests, address.input(process)), (outputs, address.output(process))):
                socket.setsockopt(zmq.IDENTITY, identity)
                socket.setsockopt(zmq.SNDHWM, 0)
                socket.setsockopt(zmq.RECONNECT_IVL, 20)
                socket.connect(endpoint)
            requests.send(greeting, zmq.NOBLOCK)
            self._outputs.append(outputs)
            self._inboxes.append(Inbox(requests, send))

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
