"""The routes that belong to no dialect: embeddings and kin, models, tokenizers, health, metrics and the fleet."""

from smg.api import admin, audio, health, models, tokenizers, workers
from smg.api.classify import classify
from smg.api.classify.types import Classifications, ClassifyBody
from smg.api.debug import DebugList, debug_request, debug_requests
from smg.api.embeddings import embeddings
from smg.api.embeddings.types import EmbeddingBody, Embeddings
from smg.api.forward import or_forward
from smg.api.info import ModelInfo, ServerInfo, model_info, server_info
from smg.api.json_handler import json_handler
from smg.api.parse import parse_function_call, parse_reasoning
from smg.api.parse.types import FunctionCallBody, ParsedFunctionCalls, ParsedReasoning, ReasoningBody
from smg.api.rerank import rerank
from smg.api.rerank.types import RerankBody, Reranked
from smg.api.route import Route
from smg.api.tokenize import detokenize, tokenize
from smg.api.tokenize.types import DetokenizeBody, Detokenized, TokenizeBody, Tokenized
from smg.api.workers import Accepted, WorkerBody, WorkerChanges
from smg.pipeline.debug import DebugRecord

OPERATIONS: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/tokenize",
        or_forward("tokenize", json_handler(tokenize)),
        "data",
        summary="Token ids of texts or of a conversation",
        body=TokenizeBody,
        reply=Tokenized,
    ),
    Route(
        "POST",
        "/v1/detokenize",
        or_forward("detokenize", json_handler(detokenize)),
        "data",
        summary="Text of token ids",
        body=DetokenizeBody,
        reply=Detokenized,
    ),
    Route(
        "POST",
        "/v1/embeddings",
        json_handler(embeddings),
        "data",
        summary="Vectors of texts or token ids",
        body=EmbeddingBody,
        reply=Embeddings,
    ),
    *(
        Route(
            "POST",
            path,
            json_handler(rerank),
            "data",
            summary="Documents by how well they answer a query",
            body=RerankBody,
            reply=Reranked,
        )
        for path in ("/v1/rerank", "/rerank")
    ),
    *(
        Route(
            "POST",
            path,
            json_handler(classify),
            "data",
            summary="The most probable class of each text",
            body=ClassifyBody,
            reply=Classifications,
        )
        for path in ("/v1/classify", "/classify")
    ),
    *audio.ROUTES,
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
        admin.workers,
        "admin",
        summary="The engines and their state",
        query=("model",),
    ),
    Route(
        "POST",
        "/parse/function_call",
        json_handler(parse_function_call),
        "admin",
        summary="The tool calls in a text",
        body=FunctionCallBody,
        reply=ParsedFunctionCalls,
    ),
    Route(
        "POST",
        "/parse/reasoning",
        json_handler(parse_reasoning),
        "admin",
        summary="The reasoning in a text",
        body=ReasoningBody,
        reply=ParsedReasoning,
    ),
    Route(
        "GET",
        "/debug/requests",
        json_handler(debug_requests),
        "admin",
        summary="The generations in the debug window",
        reply=DebugList,
    ),
    Route(
        "GET",
        "/debug/requests/<id:path>",
        debug_request,
        "admin",
        summary="One generation: prompt, ids, raw text and events",
        reply=DebugRecord,
    ),
    Route(
        "POST",
        "/workers",
        workers.create,
        "admin",
        summary="Add an engine",
        body=WorkerBody,
        reply=Accepted,
        status=202,
    ),
    Route("GET", "/workers/<worker>", workers.get, "admin", summary="One engine and its state"),
    Route(
        "PUT",
        "/workers/<worker>",
        workers.replace,
        "admin",
        summary="Change an engine as a whole",
        body=WorkerBody,
        reply=Accepted,
        status=202,
    ),
    Route(
        "PATCH",
        "/workers/<worker>",
        workers.patch,
        "admin",
        summary="Change some of an engine",
        body=WorkerChanges,
        reply=Accepted,
        status=202,
    ),
    Route(
        "DELETE",
        "/workers/<worker>",
        workers.delete,
        "admin",
        summary="Let an engine go once it is idle",
        reply=Accepted,
        status=202,
    ),
    Route("GET", "/get_loads", admin.loads, "admin", summary="The engines' last load reports"),
    Route("GET", "/loads", admin.loads, "admin", summary="The engines' last load reports"),
    Route(
        "GET",
        "/get_server_info",
        json_handler(server_info),
        "admin",
        summary="The gateway itself",
        reply=ServerInfo,
    ),
)
