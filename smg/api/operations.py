"""The routes that belong to no dialect: models, tokenizers, health, metrics and the fleet."""

from smg.api import admin, health, models, tokenizers
from smg.api.info import ModelInfo, ServerInfo, model_info, server_info
from smg.api.json_handler import json_handler
from smg.api.route import Route
from smg.api.tokenize import detokenize, tokenize
from smg.api.tokenize.types import DetokenizeBody, Detokenized, TokenizeBody, Tokenized

_loads = json_handler(admin.loads)

OPERATIONS: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/tokenize",
        json_handler(tokenize),
        "data",
        summary="Token ids of texts or of a conversation",
        body=TokenizeBody,
        reply=Tokenized,
    ),
    Route(
        "POST",
        "/v1/detokenize",
        json_handler(detokenize),
        "data",
        summary="Text of token ids",
        body=DetokenizeBody,
        reply=Detokenized,
    ),
    *tokenizers.ROUTES,
    Route("GET", "/v1/models", models.list_models, "data", summary="All models"),
    Route("GET", "/v1/models/<model:path>", models.get_model, "data", summary="One model"),
    Route(
        "GET",
        "/get_model_info",
        json_handler(model_info),
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
        json_handler(admin.workers),
        "admin",
        summary="The engines and their state",
        query=("model",),
    ),
    Route("GET", "/get_loads", _loads, "admin", summary="The engines' last load reports"),
    Route("GET", "/loads", _loads, "admin", summary="The engines' last load reports"),
    Route(
        "GET",
        "/get_server_info",
        json_handler(server_info),
        "admin",
        summary="The gateway itself",
        reply=ServerInfo,
    ),
)
