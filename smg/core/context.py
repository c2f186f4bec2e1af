"""RequestContext: what every layer may ask about the request it works for."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from smg.core import clock


class Principal(msgspec.Struct, frozen=True):
    """Who calls. ``name`` is safe to log (never a key); ``admin`` opens the admin routes.

    ``tenant`` is whose limits count: a tenant's name, that of a key, ``header:NAME``, ``ip:ADDRESS`` or ``anonymous``.
    """

    name: str = "anonymous"
    tenant: str = "anonymous"
    admin: bool = False


ANONYMOUS = Principal()


class TraceParent(msgspec.Struct, frozen=True):
    """W3C Trace Context: ``trace_id`` 32, ``span_id`` 16, ``flags`` 2 lower-case hex digits; ``state`` verbatim.

    ``span_id`` is the one to name as the parent of what follows; ``parent`` is the caller's, empty when there is none.
    """

    trace_id: str
    span_id: str
    flags: str = "01"
    state: str = ""
    parent: str = ""

    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


class _Callback:
    """A callback until it has been called or taken back.

    Whoever registered a method of its own and kept what takes it back would else live on in a cycle, with all it holds,
    until the garbage collector comes by.
    """

    __slots__ = ("call",)

    def __init__(self, call: Callable[[str], None]) -> None:
        self.call: Callable[[str], None] | None = call

    def run(self, reason: str) -> None:
        call, self.call = self.call, None
        if call is not None:
            call(reason)


class Cancel:
    """One-shot cancellation of a request, with its reason.

    Reasons are short machine words: ``client_disconnect``, ``deadline``, ``shutdown``, ``preempted``, ``stop``.
    Callbacks run once, in the order they were added, on the caller's thread (always the event loop's).
    """

    __slots__ = ("_callbacks", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._callbacks: list[_Callback] = []

    def __bool__(self) -> bool:
        return self.reason is not None

    def cancel(self, reason: str) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback.run(reason)

    def on_cancel(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call ``callback(reason)`` on cancellation, at once if it has happened; returns what takes it back."""
        if self.reason is not None:
            callback(self.reason)
            return lambda: None
        kept = _Callback(callback)
        self._callbacks.append(kept)

        def remove() -> None:
            kept.call = None
            if kept in self._callbacks:
                self._callbacks.remove(kept)

        return remove

    async def wait(self) -> str:
        """Wait for the cancellation and return its reason."""
        event = asyncio.Event()
        remove = self.on_cancel(lambda _: event.set())
        try:
            await event.wait()
        finally:
            remove()
        assert self.reason is not None
        return self.reason


class RequestContext(msgspec.Struct):
    """Identity, limits and cancellation of one client request; present on every path.

    ``deadline`` is a reading of ``clock.monotonic`` or None; ``notes`` collects operator facts ("worker", "reason",
    "attempts", "error") for the access log, response headers and the debug window. ``debug`` takes what is to be shown
    of the request's generations to who asked for it, None when nobody did. ``timed``: ``cancel`` is told when the
    deadline has passed, so that nobody else needs a timer for it. ``headers`` are the client's, by names in small
    letters; of those that came several times the first one.
    """

    request_id: str
    endpoint: str = ""
    principal: Principal = ANONYMOUS
    deadline: float | None = None
    trace: TraceParent | None = None
    cancel: Cancel = msgspec.field(default_factory=Cancel)
    started: float = msgspec.field(default_factory=clock.monotonic)
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    debug: list[Any] | None = None
    timed: bool = False
    headers: Mapping[str, str] = {}

    @property
    def tenant(self) -> str:
        return self.principal.tenant

    def remaining(self) -> float | None:
        """Seconds until the deadline (never negative), or None when there is none."""
        if self.deadline is None:
            return None
        left = self.deadline - clock.monotonic()
        return left if left > 0.0 else 0.0
