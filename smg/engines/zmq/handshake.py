"""The control process's part: it greets engine cores and tells them the sockets of all processes (contract 6.3).

engine → HELLO         gateway → addresses        engine → READY, then its facts on every input socket
"""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import zmq

from smg.engines.zmq.address import ZmqAddress
from smg.engines.zmq.port import Inbox

log = logging.getLogger("smg.engines")

# More ranks behind one URL are a mistake.
_MOST_RANKS = 1024
# How schedulers of TokenSpeed begin what vLLM's engine cores tell as their version.
_TOKENSPEED = "tokenspeed"


def identity(rank: int) -> bytes:
    """What a rank of an engine is called on sockets: its number in two bytes, little-endian."""
    return rank.to_bytes(2, "little")


def is_tokenspeed(facts: Mapping[str, Any]) -> bool:
    """Whether an engine is a scheduler of TokenSpeed, by what it told of itself."""
    return str(facts.get("vllm_version", "")).startswith(_TOKENSPEED)


class Handshake:
    """Answers engines that say hello at ``address``, whenever they do. ``processes`` counts those of the gateway.

    ``ranks`` is what the engine told of itself when it was ready, by data-parallel rank; only TokenSpeed has several. A
    control process that starts while the engine runs reads it from the file that its predecessor has left.

    Raises:
        OSError: the handshake's endpoint cannot be bound.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: ZmqAddress, processes: int) -> None:
        self._address = address
        self._processes = processes
        self.ranks = _remembered(address)
        self._router = context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        try:
            self._router.bind(address.handshake)
        except zmq.ZMQError:
            self._router.close(linger=0)
            raise
        self._inbox = Inbox(self._router, self._hear)

    @property
    def facts(self) -> dict[str, Any] | None:
        """What the first rank told; None until all are there."""
        first = self.ranks.get(0)
        if first is None:
            return None
        size = first.get("data_parallel_size")
        wanted = size if isinstance(size, int) and is_tokenspeed(first) else 1
        return first if len(self.ranks) >= wanted else None

    def greeted(self, frames: list[bytes]) -> None:
        """A rank of the engine has connected to an input socket and tells of itself."""
        rank, facts = _rank(frames), _map(frames)
        if facts is None or rank is None or (rank and not is_tokenspeed(facts)):
            log.warning("a greeting that is none", extra={"worker": self._address.base})
            return
        self.ranks[rank] = facts
        with contextlib.suppress(OSError):
            self._address.ready.write_bytes(msgspec.msgpack.encode(self.ranks))

    def close(self) -> None:
        """Listen no more."""
        self._inbox.close()

    def _hear(self, frames: list[bytes]) -> None:
        rank, said = _rank(frames), _map(frames)
        if said is None or rank is None:
            log.warning("a hello that is none", extra={"worker": self._address.base, "frames": len(frames)})
            return
        if said.get("status") == "HELLO":
            # It may be another one than before: nothing that was known of it holds any more.
            self.ranks.pop(rank, None)
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


def _rank(frames: list[bytes]) -> int | None:
    """The rank that has sent a message, None for names that no rank has."""
    rank = int.from_bytes(frames[0], "little") if frames and len(frames[0]) == 2 else _MOST_RANKS
    return rank if rank < _MOST_RANKS else None


def _map(frames: list[bytes]) -> dict[str, Any] | None:
    """The map in a message of an identity and a payload, None for any other message."""
    if len(frames) != 2:
        return None
    try:
        return msgspec.msgpack.decode(frames[1], type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _remembered(address: ZmqAddress) -> dict[int, dict[str, Any]]:
    try:
        return msgspec.msgpack.decode(address.ready.read_bytes(), type=dict[int, dict[str, Any]])
    except (OSError, msgspec.MsgspecError):
        return {}
