"""What a transport of gRPC contracts provides: unary and server-streaming calls of message bytes.

A transport may also read the hot messages of a token stream itself (``TokenTransport``).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, TypeGuard, runtime_checkable

from smg._native.wire import Layout
from smg.core.stream import StreamTable

# Bytes of one message, either way (spec engine-contract 4.2, field case CF-02).
MESSAGE_LIMIT = 256 << 20


class Call(Protocol):
    """One running server-streaming call."""

    async def read(self) -> list[bytes]:
        """Return all messages that have arrived (at least one), or [] at the end with status OK.

        Raises:
            GatewayError: mapped from the status (spec engine-contract 4.3).
        """
        ...

    def cancel(self) -> None:
        """Reset the stream. Idempotent."""
        ...


class Tokens(Protocol):
    """New ids of one choice, read by the transport; they may be those of several messages.

    ``prompt_tokens`` is the engine's last count, the other counts are its highest (0: not told).
    """

    @property
    def index(self) -> int: ...

    @property
    def ids(self) -> list[int]: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def reasoning_tokens(self) -> int: ...


Item: TypeAlias = bytes | Tokens


class TokenCall(Protocol):
    """A ``Call`` whose plain token chunks come as Tokens, any other message as bytes. The order of a choice is kept."""

    async def read(self) -> Sequence[Item]: ...

    def cancel(self) -> None: ...


class RowCall(TokenCall, Protocol):
    """A ``TokenCall`` that can feed rows of a table itself."""

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        """From the next ``read`` on, while it waits, feed plain chunks of choice ``i`` to ``rows[i]``; False: it can't.

        What is fed is not returned: ``read`` tells of it by Tokens without ids, and only when Python is needed.
        """
        ...

    def unsaid(self) -> list[Tokens]:
        """Tokens without ids that tell of what was fed during a ``read`` that was broken off; each is told once."""
        ...


def feeds_rows(call: Call | TokenCall) -> TypeGuard[RowCall]:
    """Whether ``call`` is a RowCall."""
    return hasattr(call, "feed_rows")


class LingeringCall(TokenCall, Protocol):
    """A ``TokenCall`` that notices its end also when nobody reads any more."""

    def linger(self, seconds: float) -> None:
        """All that matters has been read: end with the stream's own status, or be cancelled after ``seconds``."""
        ...


def lingers(call: Call | TokenCall) -> TypeGuard[LingeringCall]:
    """Whether ``call`` is a LingeringCall."""
    return hasattr(call, "linger")


class Transport(Protocol):
    """A connection (or several) to one engine address, opened on first use."""

    async def unary(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        """Call ``path`` (``/service/Method``) for at most ``timeout`` seconds. Raises GatewayError as ``Call.read``."""
        ...

    def stream(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> Call: ...

    async def close(self) -> None: ...


class Connect(Protocol):
    """Makes a transport. ``message_limit`` bounds a message of an answer, in bytes; a larger one ends its call."""

    def __call__(self, url: str, *, message_limit: int = MESSAGE_LIMIT) -> Transport: ...


@runtime_checkable
class TokenTransport(Transport, Protocol):
    """A transport that reads plain token chunks: those of the contract that ``layout`` describes."""

    def generate(
        self,
        path: str,
        message: bytes,
        timeout: float | None,
        metadata: Mapping[str, str] | None = None,
        *,
        layout: Layout,
    ) -> TokenCall: ...
