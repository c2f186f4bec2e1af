"""``GET /v1/models`` and ``GET /v1/models/{id}`` (spec api-and-ops 1.9; field case RO-01)."""

from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.errors import JSON
from smg.core.errors import GatewayError
from smg.fleet.records import ModelRecord


async def list_models(request: Request) -> HTTPResponse:
    """Each model once; an empty list when none is known yet."""
    records = request.app.ctx.services.view.snapshot().models
    body = {"object": "list", "data": [_model(record) for record in records]}
    return HTTPResponse(msgspec.json.encode(body), content_type=JSON)


async def get_model(request: Request, model: str) -> HTTPResponse:
    """One model by id or alias; ids may contain slashes."""
    record = request.app.ctx.services.view.snapshot().model(model)
    if record is None:
        raise GatewayError("model_not_found", f"the model '{model}' does not exist", param="model")
    return HTTPResponse(msgspec.json.encode(_model(record)), content_type=JSON)


def _model(record: ModelRecord) -> dict[str, Any]:
    out: dict[str, Any] = {"id": record.id, "object": "model", "created": record.created, "owned_by": "smg"}
    if record.context_length:
        # The name under which engines tell it; clients size their prompts by it.
        out["max_model_len"] = record.context_length
    return out
