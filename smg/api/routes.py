"""Every route of the gateway, for the server to register."""

from smg.api import admin, health, models, openapi
from smg.api.endpoint import endpoint
from smg.api.errors import error_body
from smg.api.handler import generation_handler
from smg.api.info import ModelInfo, ServerInfo, model_info, server_info
from smg.api.route import Access, Route
from smg.api.table import DIALECTS
from smg.api.tokenize import detokenize, tokenize
from smg.api.tokenize.types import DetokenizeBody, Detokenized, TokenizeBody, Tokenized

__all__ = ["Access", "Route", "error_body", "routes"]


def routes() -> list[Route]:
    """All routes. Handlers read ``request.ctx.smg`` (RequestContext) and ``request.app.ctx.services`` (Services)."""
    loads = endpoint(admin.loads)
    table = [
        *_generations(),
        Route(
            "POST",
            "/v1/tokenize",
            endpoint(tokenize),
            "data",
            summary="Token ids of texts or of a conversation",
            body=TokenizeBody,
            reply=Tokenized,
        ),
        Route(
            "POST",
            "/v1/detokenize",
            endpoint(detokenize),
            "data",
            summary="Text of token ids",
            body=DetokenizeBody,
            reply=Detokenized,
        ),
        Route("GET", "/v1/models", models.list_models, "data", summary="All models"),
        Route("GET", "/v1/models/<model:path>", models.get_model, "data", summary="One model"),
        Route(
            "GET",
            "/get_model_info",
            endpoint(model_info),
            "data",
            summary="A model as its engines describe it",
            reply=ModelInfo,
            query=("model",),
        ),
        Route("GET", "/health", health.alive, "public", summary="Whether the process answers at all"),
        Route("GET", "/liveness", health.alive, "public", summary="Whether the process answers at all"),
        Route("GET", "/readiness", health.readiness, "public", summary="Whether requests can be served"),
        Route("GET", "/metrics", health.metrics, "public", summary="Prometheus metrics of all processes"),
        Route(
            "GET",
            "/workers",
            endpoint(admin.workers),
            "admin",
            summary="The engines and their state",
            query=("model",),
        ),
        Route("GET", "/get_loads", loads, "admin", summary="The engines' last load reports"),
        Route("GET", "/loads", loads, "admin", summary="The engines' last load reports"),
        Route(
            "GET",
            "/get_server_info",
            endpoint(server_info),
            "admin",
            summary="The gateway itself",
            reply=ServerInfo,
        ),
    ]
    summary = "This document"
    return [*table, Route("GET", "/openapi.json", openapi.handler(table), "public", summary=summary)]


def _generations() -> list[Route]:
    return [
        Route(
            "POST",
            dialect.path,
            generation_handler(dialect),
            "data",
            dialect.name,
            summary=(dialect.__doc__ or "").strip().partition("\n")[0].rstrip("."),
            body=dialect.body,
            reply=dialect.reply,
            streams=True,
        )
        for dialect in DIALECTS
    ]
