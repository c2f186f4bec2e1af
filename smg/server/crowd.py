"""How many connections a worker process has, and what becomes of one more (``--max-connections``).

Beyond the limit a few are guests: what they ask first is still read, so that probes, scrapes and admins get their
answer while nobody else does. Whoever comes after them is told by fixed bytes that there is no room.
"""

import asyncio
import logging
import resource
import sys
from enum import Enum

import msgspec

from smg.config.settings import ServerSettings
from smg.core import clock
from smg.core.errors import GatewayError, openai_shape
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.server")

# Descriptors of a process that are not clients': engines, files, pipes, guests and those who are being refused.
RESERVED = 512
GUESTS = 64
# A guest's whole stay: its request and the answer to that.
GUEST_SECONDS = 10.0
# Who is refused may take so long to read that and leave; cut off at once, it would often see a reset and no answer.
_LEAVING_SECONDS = 1.0
_MOST_LEAVING = 128
# They have asked nothing, so there is no access record of them. The log tells of them together, at most so often.
_TELL_SECONDS = 10.0


class Place(Enum):
    """What a new connection is."""

    MEMBER = "member"
    GUEST = "guest"
    REFUSED = "refused"


class Crowd:
    """The connections of one worker process. ``most`` of them may do anything."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.most = most_connections(settings.max_connections)
        self._refused = metrics.http_connections_refused_total
        self._leaving = 0
        self._untold = 0
        self._tell_at = 0.0

    def place(self, open: int) -> Place:
        """What one more connection is beside the ``open`` ones."""
        if open < self.most:
            return Place.MEMBER
        return Place.GUEST if open < self.most + GUESTS else Place.REFUSED

    def count_refused(self) -> None:
        """Note that a connection got no other answer than that there is no room."""
        self._refused.inc()

    def refuse(self, transport: asyncio.Transport) -> None:
        """Say that there is no room, and have the connection end soon; its former protocol hears no more of it."""
        self.count_refused()
        self._tell(transport)
        if self._leaving >= _MOST_LEAVING:
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            return
        self._leaving += 1
        transport.set_protocol(_Leaving(self))
        transport.write(_NO_ROOM)
        asyncio.get_running_loop().call_later(_LEAVING_SECONDS, transport.abort)

    def _tell(self, transport: asyncio.Transport) -> None:
        """Log how many have been refused since the last time, and where this one comes from."""
        self._untold += 1
        now = clock.monotonic()
        if now < self._tell_at:
            return
        peer = transport.get_extra_info("peername")
        facts = {"refused": self._untold, "connections": self.most, "client": peer[0] if peer else ""}
        log.warning("no room for further connections (--max-connections)", extra=facts)
        self._untold, self._tell_at = 0, now + _TELL_SECONDS

    def left(self) -> None:
        """One of those who were refused is gone."""
        self._leaving -= 1


class _Leaving(asyncio.Protocol):
    """The client of a refused connection: what it sends is dropped."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.left()


def no_room() -> GatewayError:
    """What a client is told for whose connection there is no room."""
    return GatewayError("overloaded", "The gateway has as many connections as it may; try again later.")


def _no_room() -> bytes:
    error = no_room()
    body = msgspec.json.encode(openai_shape(error))
    headers = {
        **error.headers(),
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
    }
    lines = [f"HTTP/1.1 {error.status} Service Unavailable", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


_NO_ROOM = _no_room()


def most_connections(wanted: int) -> int:
    """``wanted`` (0: no limit), or as many as this process may have descriptors for."""
    room, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if room == resource.RLIM_INFINITY:
        return wanted or sys.maxsize
    room = max(room - RESERVED, 1)
    if wanted > room:
        log.warning(
            "fewer connections than --max-connections: a process may open only so many files",
            extra={"wanted": wanted, "connections": room},
        )
    return min(wanted or room, room)


def raise_file_limit(most: int) -> None:
    """Let this process and its children open as many files as they may, up to what ``most`` connections (0: any
    number) need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + RESERVED if most else hard
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
