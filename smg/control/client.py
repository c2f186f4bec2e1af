"""Client of the control process's admin socket, for request workers and tools."""

import asyncio
from typing import Any

from smg.control import frames
from smg.core.errors import GatewayError

_TIMEOUT_SECS = 10.0


class ControlClient:
    """Calls operations of the control process that belongs to ``boot_id``; one connection per call."""

    def __init__(self, state_dir: str, boot_id: int, timeout: float = _TIMEOUT_SECS) -> None:
        self._path = frames.socket_path(state_dir, boot_id)
        self._timeout = timeout

    async def call(self, op: str, **arguments: Any) -> Any:
        """Run ``op`` and return its result; what comes in parts is put together.

        Raises:
            GatewayError: the operation's own error, or ``overloaded`` (503) when control does not answer.
        """
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._exchange({"op": op, **arguments})
        except (OSError, TimeoutError, frames.FrameError) as error:
            raise GatewayError(
                "overloaded", "the fleet's control process does not answer", detail=f"{type(error).__name__}: {error}"
            ) from None
        if answer.get("ok"):
            return answer.get("result")
        failure = answer.get("error") or {}
        raise GatewayError(
            str(failure.get("code", "internal_error")), str(failure.get("message", "")), param=failure.get("param")
        )

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        with frames.address(self._path) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        try:
            await frames.write(writer, request)
            parts: dict[str, list[Any]] = {}
            while (answer := await frames.read(reader)) is not None:
                if "part" not in answer:
                    return {**answer, "result": parts} if parts else answer
                for name, values in answer["part"].items():
                    parts.setdefault(name, []).extend(values)
        finally:
            writer.close()
        raise frames.FrameError("the connection was closed")
