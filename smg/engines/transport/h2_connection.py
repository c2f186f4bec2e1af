"""One native HTTP/2 connection: connecting, serving, draining, closed (spec engine-contract 4.2 and 4.4).

Frames, windows and messages are ``smg._native.h2``'s; this decides what they mean for calls. Header blocks are unpacked
here, two per call.
"""

import asyncio
import contextvars
import logging
from typing import Any, Protocol

import msgspec

from smg._native.h2 import Connection
from smg.engines.transport.address import Address
from smg.engines.transport.errors import RpcError
from smg.engines.transport.h2_call import H2Call
from smg.engines.transport.h2_headers import HeaderDecoder, Status
from smg.engines.transport.h2_link import Link, connect

log = logging.getLogger("smg.engines")

_COMPRESSION_ERROR = 9
_ENHANCE_YOUR_CALM = 11
# How TLS begins to answer what is none: an alert, or its part of a handshake.
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")


class Timing(msgspec.Struct, frozen=True):
    """Time limits in seconds: to connect, of silence before a ping, and for its answer.

    As long as nothing but answers to pings comes, each ping waits four times as long as the one before, up to
    ``patience``: by default gRPC's servers end a connection, and all that runs on it, at the third ping in a row that
    comes less than five minutes after another.
    """

    connect: float = 5.0
    keepalive: float = 30.0
    answer: float = 10.0
    patience: float = 310.0

    def calmer(self) -> "Timing":
        """For an engine that finds us too eager."""
        return msgspec.structs.replace(self, keepalive=max(self.keepalive, min(2 * self.keepalive, self.patience)))


class Owner(Protocol):
    """What a connection tells its transport."""

    def ended(self, connection: "H2Connection", error: RpcError | None) -> None:
        """A call is over (None: OK, or cancelled by us)."""
        ...

    def leaving(self, connection: "H2Connection", *, calm: bool) -> None:
        """No further call may be started here. ``calm``: the engine found us too eager."""
        ...

    def restart(self, call: H2Call[Any]) -> None:
        """Start ``call``, which the engine has not seen, on another connection."""
        ...


class H2Connection:
    """Connects at once; calls may be opened before that is done. ``roots`` as in ``h2_link.connect``."""

    def __init__(self, address: Address, roots: bytes | None, timing: Timing, owner: Owner) -> None:
        self.native = Connection()
        self.calls: set[H2Call[Any]] = set()
        self.closed = False
        self._target = address.target
        self._owner = owner
        self._timing = timing
        self._decoder = HeaderDecoder()
        self._link: Link | None = None
        self._loop = asyncio.get_running_loop()
        self._settled: asyncio.Future[None] = self._loop.create_future()
        # The peer's SETTINGS have been seen to.
        self._steady = False
        self._leaving = False
        # A call has got further than to be sent.
        self._served = False
        self._flushing = False
        self._told: tuple[int, int, str] | None = None
        # When input came last, how often it has come, and how often (and how many answers to pings) at the last ping.
        self._heard = 0.0
        self._inputs = 0
        self._before = (0, 0)
        self._pause = timing.keepalive
        self._timer: asyncio.TimerHandle | None = None
        # A connection is not of the request that needed it first: what goes on from here must not keep that one alive.
        self._connecting = self._loop.create_task(self._connect(address, roots), context=contextvars.Context())

    @property
    def ready(self) -> bool:
        """The engine has answered, and takes further calls."""
        return self._settled.done() and not self._leaving and not self.closed

    def open(self, call: H2Call[Any]) -> None:
        """Start ``call`` here, as soon as the engine has a place for it."""
        self.calls.add(call)
        call.start(self)

    def flush_soon(self) -> None:
        """Send at the end of this turn of the loop, together with what else there is by then."""
        if not self._flushing and self._link is not None and self.native.pending:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def refused(self, call: H2Call[Any], status: Status) -> None:
        # However often others got through: nobody knows when the next one may.
        self._move(call, status, progress=False)

    def ended(self, call: H2Call[Any], error: RpcError | None) -> None:
        self.calls.discard(call)
        self._owner.ended(self, error)
        if self._leaving and not self.calls:
            self.close("the connection was replaced")

    def retire(self) -> None:
        """Close as soon as the running calls are over."""
        self._leaving = True
        if not self.calls:
            self.close("the connection was replaced")

    def close(self, details: str) -> None:
        """Close; running calls fail. Idempotent."""
        self.native.shutdown()
        self.lost(details)

    async def wait_closed(self) -> None:
        """Wait until nothing of a closed connection runs any more."""
        await asyncio.wait([self._connecting])

    # -- told by the link

    def settle(self) -> None:
        """Bring what has arrived to the calls, headers first."""
        self._heard = self._loop.time()
        self._inputs += 1
        native = self.native
        for stream, block, end in native.take_headers():
            try:
                headers = self._decoder.decode(block)
            except ValueError as error:
                native.shutdown(_COMPRESSION_ERROR)
                self.lost(str(error))
                return
            if stream is not None and isinstance(stream.owner, H2Call):
                self._served = True
                stream.owner.on_headers(headers, end)
        for stream in native.take_ready():
            if isinstance(stream.owner, H2Call):
                stream.owner.on_ready()
        if self._steady and native.steady:
            self.flush_soon()
        else:
            self._look_after()

    def _look_after(self) -> None:
        """See to what has become of the connection itself."""
        native = self.native
        if native.failure is not None:
            self.lost(native.failure[1])
            return
        if native.settled and not self._settled.done():
            self._settled.set_result(None)
            self._spread()
        self._steady = native.settled
        if native.goaway != self._told:
            self._drain()
        elif native.exhausted:
            self._hand_over(Status("UNAVAILABLE", "the connection has no stream ids left"))
        self.flush_soon()

    def lost(self, details: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._link is not None and not self.native.settled:
            details = never_began(self.native.unread, details)
        # Calls tell of it, too; but there may be none.
        log.debug("connection to an engine ended", extra={"worker": self._target, "error": details})
        self._connecting.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.close()
        self._leave(calm=False)
        ended = Status("UNAVAILABLE", details)
        if self.native.settled:
            self._hand_over(ended)
        for call in list(self.calls):
            call.fail(ended)

    # -- life

    async def _connect(self, address: Address, roots: bytes | None) -> None:
        """Connect and wait for the engine's SETTINGS."""
        try:
            async with asyncio.timeout(self._timing.connect):
                self._link = await connect(address, roots, self)
                self._link.flush()
                await self._settled
        except TimeoutError:
            self.lost("connecting took too long")
        except (OSError, ValueError) as error:
            self.lost(f"connecting failed: {error}")
        else:
            self._timer = self._loop.call_later(self._timing.keepalive, self._beat)

    def _beat(self) -> None:
        """Ask for a sign of life after a time of silence, while calls wait for one."""
        inputs, pongs = self._before
        if self._inputs - inputs > self.native.pongs - pongs:
            self._pause = self._timing.keepalive
        left = self._heard + self._pause - self._loop.time()
        if not self.calls or left > 0:
            wait = min(left, self._timing.keepalive) if left > 0 else self._timing.keepalive
            self._timer = self._loop.call_later(wait, self._beat)
            return
        self._pause = max(self._pause, min(4 * self._pause, self._timing.patience))
        self._before = self._inputs, self.native.pongs
        self.native.ping()
        self.flush_soon()
        self._timer = self._loop.call_later(self._timing.answer, self._listen, self._heard)

    def _listen(self, before: float) -> None:
        if self._heard > before:
            self._beat()
        else:
            self.close("the engine does not answer pings")

    def _drain(self) -> None:
        """GOAWAY: streams up to the last may finish, later ones were not processed, queued ones go elsewhere."""
        assert self.native.goaway is not None
        self._told = last, code, text = self.native.goaway
        self._leave(calm=code == _ENHANCE_YOUR_CALM)
        refusal = Status("UNAVAILABLE", f"GOAWAY (HTTP/2 error {code}) {text}".strip())
        # Proxies say it after so many requests (nginx: 1000), whatever is on its way to them.
        turned_away = [stream for stream in self.native.streams if stream.id > last]
        self._served = self._served or len(self.native.streams) > len(turned_away)
        for stream in turned_away:
            if isinstance(stream.owner, H2Call):
                self._move(stream.owner, refusal, progress=self._served)
        self._hand_over(refusal)
        if not self.calls:
            self.close("the engine said GOAWAY")

    def _hand_over(self, otherwise: Status) -> None:
        """No stream can be opened any more: those that wait for it go to another connection."""
        self._leave(calm=False)
        for stream in self.native.queued:
            if isinstance(stream.owner, H2Call):
                self._move(stream.owner, otherwise, progress=self._served)

    def _spread(self) -> None:
        """Now that the engine has said how many streams it takes: other connections may have places for the rest."""
        if self.native.goaway is not None:
            return
        for stream in self.native.queued:
            if isinstance(stream.owner, H2Call):
                self._restart(stream.owner)

    def _restart(self, call: H2Call[Any]) -> None:
        call.leave()
        self.calls.discard(call)
        self._owner.restart(call)

    def _move(self, call: H2Call[Any], otherwise: Status, *, progress: bool) -> None:
        """Start a call again, which the engine has not seen; one that may not be ends as ``otherwise`` says."""
        if call.may_move(progress=progress):
            self._restart(call)
        else:
            call.fail(otherwise)

    def _leave(self, *, calm: bool) -> None:
        if not self._leaving:
            self._leaving = True
            self._owner.leaving(self, calm=calm)

    def _flush(self) -> None:
        self._flushing = False
        if self._link is not None:
            self._link.flush()
        if self.native.failure is not None:
            # What calls ask for can be too much, too, when the peer does not read.
            self.lost(self.native.failure[1])


def never_began(first: bytes, details: str) -> str:
    """Why a connection ended (with ``details``) whose peer has sent no SETTINGS but ``first``, for operators."""
    if first.startswith(b"HTTP/"):
        return "the peer speaks HTTP/1 and no HTTP/2, as gRPC would"
    if first[:2] in _TLS_RECORDS:
        return "the peer speaks TLS: its address may have to begin with grpcs://"
    return f"the peer did not begin to speak HTTP/2: {details}"
