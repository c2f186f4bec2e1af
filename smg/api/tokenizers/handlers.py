"""The handlers. The control process does the work; what a model's tokenizer is like, this process knows best."""

from typing import Any
from urllib.parse import unquote

from sanic import Request

from smg.api.control import ask
from smg.api.tokenizers.types import Accepted, AddBody, Deleted, TokenizerInfo, TokenizerList, TokenizerStatus
from smg.core import wire
from smg.core.errors import GatewayError, bad_request
from smg.pipeline.services import Services


async def add(request: Request, services: Services) -> Accepted:
    """``POST /v1/tokenizers``: begin to load a tokenizer.

    Raises:
        GatewayError: ``conflict`` (409) when the name is taken, ``overloaded`` (503) when too many are on their way.
    """
    body = wire.decode(request.body, AddBody)
    for field in AddBody.needs:
        if getattr(body, field) is None:
            raise bad_request(f"{field} is needed", field)
    found = await ask(
        services, "tokenizer_add", name=body.name, source=body.source, chat_template=body.chat_template_path or ""
    )
    return Accepted(found["id"], found["status"], f"the tokenizer '{body.name}' is being loaded")


async def list_all(request: Request, services: Services) -> TokenizerList:
    """``GET /v1/tokenizers``: those that can be used, by name."""
    found = [_info(entry, services) for entry in await ask(services, "tokenizers") if entry["status"] == "completed"]
    return TokenizerList(sorted(found, key=lambda info: info.name))


async def get(request: Request, services: Services, tokenizer: str) -> TokenizerInfo:
    """``GET /v1/tokenizers/<id>``: one, by its id or name. Raises GatewayError: ``not_found`` (404)."""
    entry = await _entry(services, tokenizer)
    if entry["status"] != "completed":
        raise _not_found(tokenizer)
    return _info(entry, services)


async def status(request: Request, services: Services, tokenizer: str) -> TokenizerStatus:
    """``GET /v1/tokenizers/<id>/status``: how its loading goes. Raises GatewayError: ``not_found`` (404)."""
    entry = await _entry(services, tokenizer)
    return TokenizerStatus(entry["id"], entry["name"], entry["status"], entry["error"])


async def delete(request: Request, services: Services, tokenizer: str) -> Deleted:
    """``DELETE /v1/tokenizers/<id>``: forget an added one.

    Raises:
        GatewayError: ``not_found`` (404), or ``conflict`` (409) for one that a model brought.
    """
    name = await ask(services, "tokenizer_delete", tokenizer=unquote(tokenizer))
    return Deleted(True, f"the tokenizer '{name}' has been removed")


async def _entry(services: Services, tokenizer: str) -> dict[str, Any]:
    """By name, else by id."""
    wanted = unquote(tokenizer)
    entries: list[dict[str, Any]] = await ask(services, "tokenizers")
    for field in ("name", "id"):
        for entry in entries:
            if entry[field] == wanted:
                return entry
    raise _not_found(wanted)


def _not_found(tokenizer: str) -> GatewayError:
    return GatewayError("not_found", f"there is no tokenizer '{unquote(tokenizer)}'")


def _info(entry: dict[str, Any], services: Services) -> TokenizerInfo:
    size = entry["vocab_size"] or None
    if size is None:
        record = services.view.snapshot().model(entry["name"])
        if record is not None and services.texts.ready(record):
            size = services.texts.get(record).tokenizer.size
    return TokenizerInfo(entry["id"], entry["name"], entry["source"], size, entry["origin"])
