"""The rows of the route table."""

from smg.api.json_handler import json_handler
from smg.api.route import Route
from smg.api.tokenizers import handlers
from smg.api.tokenizers.types import Accepted, AddBody, Deleted, TokenizerInfo, TokenizerList, TokenizerStatus

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/tokenizers",
        json_handler(handlers.add, 202),
        "admin",
        summary="Load a tokenizer",
        body=AddBody,
        reply=Accepted,
        status=202,
    ),
    Route(
        "GET",
        "/v1/tokenizers",
        json_handler(handlers.list_all),
        "admin",
        summary="All tokenizers",
        reply=TokenizerList,
    ),
    Route(
        "GET",
        "/v1/tokenizers/<tokenizer>",
        json_handler(handlers.get),
        "admin",
        summary="One tokenizer",
        reply=TokenizerInfo,
    ),
    Route(
        "GET",
        "/v1/tokenizers/<tokenizer>/status",
        json_handler(handlers.status),
        "admin",
        summary="How loading a tokenizer goes",
        reply=TokenizerStatus,
    ),
    Route(
        "DELETE",
        "/v1/tokenizers/<tokenizer>",
        json_handler(handlers.delete),
        "admin",
        summary="Remove a tokenizer",
        reply=Deleted,
    ),
)
