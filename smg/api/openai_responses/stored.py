"""Routes of responses that were kept: none are."""

from sanic import Request

from smg.core.errors import GatewayError
from smg.pipeline.services import Services


async def missing(request: Request, services: Services, response: str) -> None:
    """Raises GatewayError: ``not_found`` (404), for every id."""
    raise GatewayError("not_found", f"there is no response '{response}': this gateway keeps none", param="response_id")
