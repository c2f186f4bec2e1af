"""What an HTTP engine tells of itself, from the routes that the usual servers have (spec engine-contract 2.8 and 4.1).

``server_info`` holds secrets; only the fields of a fixed list are ever read of it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from smg.engines.base import EngineInfo
from smg.engines.http import routes
from smg.engines.labels import ARGUMENTS

MODELS = "/v1/models"
# The same document under its new and its old name.
SERVER_INFO = ("/server_info", "/get_server_info")
MODEL_INFO = ("/model_info", "/get_model_info")
VERSION = "/version"
PATHS = "/openapi.json"
ASKED = (MODELS, *SERVER_INFO, *MODEL_INFO, VERSION, PATHS)

# Any OpenAI-style server that is none of the others, another gateway for one.
ANY = "openai"
_OWNERS = {"sglang": "sglang", "nvidia": "sglang", "vllm": "vllm"}

Documents = Mapping[str, dict[str, Any]]


class HttpFacts(msgspec.Struct, frozen=True):
    """``runtime`` is the kind of server; ``features`` are those of its routes."""

    runtime: str
    info: EngineInfo
    features: frozenset[str]


def read(documents: Documents, configured: str = "") -> HttpFacts:
    """Make the facts of what was answered; ``configured`` is the kind of server the operator names.

    Raises:
        ValueError: it tells of no model.
    """
    models = _models(documents)
    server = _first(documents, SERVER_INFO)
    model = _first(documents, MODEL_INFO)
    path = _text(model, "model_path") or _text(server, "model_path")
    names = [name for name, _ in models] or [
        name for name in (_text(server, "served_model_name"), _text(model, "served_model_name"), path) if name
    ][:1]
    if not names:
        raise ValueError("it tells of no model")
    runtime = configured or _runtime(documents, models, server)
    generates = model.get("is_generation", True) is not False
    labels = _labels(documents, server, model)
    features = routes.features(runtime, _paths(documents))
    if labels.get("disaggregation_mode") in ("prefill", "decode"):
        features -= routes.UNPAIRED
    info = EngineInfo(
        model_id=names[0],
        models=tuple(names),
        model_path=path,
        tokenizer_path=_text(model, "tokenizer_path"),
        context_length=_context(models, server, model),
        is_generation=generates,
        labels=labels,
    )
    return HttpFacts(runtime, info, features if generates else features - routes.GENERATING)


def _models(documents: Documents) -> list[tuple[str, dict[str, Any]]]:
    """Names and entries of the model list. Adapters (entries with a parent) come after what they adapt."""
    data = documents.get(MODELS, {}).get("data")
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    named = {entry["id"]: entry for entry in entries if isinstance(entry.get("id"), str) and entry["id"]}
    return sorted(named.items(), key=lambda item: item[1].get("parent") is not None)


def _runtime(documents: Documents, models: Iterable[tuple[str, dict[str, Any]]], server: dict[str, Any]) -> str:
    owner = next((entry.get("owned_by") for _, entry in models), None)
    if isinstance(owner, str) and owner.lower() in _OWNERS:
        return _OWNERS[owner.lower()]
    if "max_total_num_tokens" in server or "disaggregation_mode" in server:
        return "sglang"
    if models and owner is not None:
        return ANY
    return "vllm" if "version" in documents.get(VERSION, {}) else ANY


def _context(models: Iterable[tuple[str, dict[str, Any]]], server: dict[str, Any], model: dict[str, Any]) -> int:
    """Tokens of the context; 0 when unknown, or when the engine's models differ."""
    told = {_number(entry, "max_model_len") for _, entry in models}
    if len(told) == 1 and (length := told.pop()):
        return length
    if told:
        return 0
    return _number(server, "context_length") or _number(model, "context_length")


def _labels(documents: Documents, server: dict[str, Any], model: dict[str, Any]) -> dict[str, str]:
    labels = {}
    for name in (*ARGUMENTS, "version"):
        value = server.get(name)
        if isinstance(value, str | int | float) and value:
            labels[name] = str(value).lower() if isinstance(value, bool) else str(value)
    for name in ("model_type", "weight_version", "tokenizer_path", "model_path"):
        if text := _text(model, name):
            labels[name] = text
    if isinstance(model.get("architectures"), list):
        labels["architectures"] = json.dumps(model["architectures"])
    if isinstance(model.get("is_generation"), bool):
        labels["is_generation"] = str(model["is_generation"]).lower()
    if version := _text(documents.get(VERSION, {}), "version"):
        labels.setdefault("version", version)
    return labels


def _paths(documents: Documents) -> Iterable[str]:
    paths = documents.get(PATHS, {}).get("paths")
    return paths if isinstance(paths, dict) else ()


def _first(documents: Documents, names: Iterable[str]) -> dict[str, Any]:
    return next((documents[name] for name in names if name in documents), {})


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _number(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
