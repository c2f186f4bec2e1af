"""What a transport of gRPC contracts provides: unary and server-streaming calls of message bytes."""

from collections.abc import Mapping
from typing import Protocol


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
