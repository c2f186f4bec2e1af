"""The control process's part: it greets engine cores and tells them the sockets of all processes (contract 6.3).

engine → HELLO         gateway → addresses        engine → READY, then its facts on every input socket
"""

import contextlib
import logging
from typing import Any

import msgspec
import zmq

from smg.engines.zmq.address import ZmqAddress
from smg.engines.zmq.port import Inbox

log = logging.getLogger("smg.engines")

# Two bytes, little-endian: the engine's number. One engine core per URL.
IDENTITY = b"\x00\x00"


class Handshake:
    """Answers engines that say hello at ``address``, whenever they do. ``processes`` counts those of the gateway.

    ``facts`` is what the engine told of itself when it was ready, None before. A control process that starts while the
    engine runs reads it from the file that its predecessor has left.

    Raises:
        OSError: the handshake's endpoint cannot be bound.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: ZmqAddress, processes: int) -> None:
        self._address = address
        self._processes = processes
        self.facts = _remembered(address)
        self._router = context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        try:
            self._router.bind(address.handshake)
        except zmq.ZMQError:
            self._router.close(linger=0)
            raise
        self._inbox = Inbox(self._router, self._hear)

    def greeted(self, frames: list[bytes]) -> None:
        """The engine has connected to an input socket and tells of itself."""
        facts = _map(frames)
        if facts is None or frames[0] != IDENTITY:
            log.warning("a greeting that is none", extra={"worker": self._address.base})
            return
        self.facts = facts
        with contextlib.suppress(OSError):
            self._address.ready.write_bytes(frames[1])

    def close(self) -> None:
        """Listen no more."""
        self._inbox.close()

    def _hear(self, frames: list[bytes]) -> None:
        said = _map(frames)
        if said is None or frames[0] != IDENTITY:
            log.warning("a hello that is none", extra={"worker": self._address.base, "frames": len(frames)})
            return
        if said.get("status") == "HELLO":
            # It may be another one than before: nothing that was known of it holds any more.
            self.facts = None
            self._address.ready.unlink(missing_ok=True)
            self._router.send_multipart([frames[0], self._addresses()], zmq.NOBLOCK)
            self._inbox.look()

    def _addresses(self) -> bytes:
        every = range(self._processes)
        addresses = {
            "inputs": [self._address.input(process) for process in every],
            "outputs": [self._address.output(process) for process in every],
            "coordinator_input": None,
            "coordinator_output": None,
            "frontend_stats_publish_address": None,
        }
        return msgspec.msgpack.encode({"addresses": addresses, "parallel_config": {}})


def _map(frames: list[bytes]) -> dict[str, Any] | None:
    """The map in a message of an identity and a payload, None for any other message."""
    if len(frames) != 2:
        return None
    try:
        return msgspec.msgpack.decode(frames[1], type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _remembered(address: ZmqAddress) -> dict[str, Any] | None:
    try:
        return _map([IDENTITY, address.ready.read_bytes()])
    except OSError:
        return None
