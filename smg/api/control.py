"""How a request asks the control process."""

from typing import Any

from smg.core.errors import GatewayError
from smg.pipeline.services import Services


async def ask(services: Services, op: str, **arguments: Any) -> Any:
    """Run ``op`` there. Raises GatewayError: the operation's own, or ``overloaded`` (503) when it does not answer."""
    if services.control is None:
        raise GatewayError("overloaded", "the control process is not reachable")
    return await services.control.call(op, **arguments)
