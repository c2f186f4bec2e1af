"""What the admin routes ask the control process, over its Unix socket."""

from typing import Any

from smg.control.client import ControlClient


class ControlLink:
    """The ``Control`` of ``pipeline.services``, which may not know the control package itself."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client

    async def workers(self) -> list[Any]:
        """All workers with their state. Raises GatewayError when control does not answer."""
        fleet = await self._client.call("list")
        return list(fleet["workers"])

    async def loads(self) -> list[Any]:
        """The engines' last load reports, one per worker. Raises GatewayError when control does not answer."""
        loads = await self._client.call("loads")
        return [{"worker": worker, **load} for worker, load in loads.items()]
