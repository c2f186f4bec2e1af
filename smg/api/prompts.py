"""Prompts that a client sends as text or as token ids, one or several (spec text-pipeline 12, 13)."""

from typing import Any, TypeAlias

from smg.api.sampling import Token
from smg.core.errors import bad_request
from smg.core.request import GenerationRequest
from smg.core.wire import convert, kind_of

# Prompts of one request, which all run at the same time.
MAX_PROMPTS = 1024

Texts: TypeAlias = str | list[str]
Ids: TypeAlias = list[int] | list[list[int]]


def texts(value: Any, path: str) -> Texts:
    """A text or a list of them, none empty. Raises GatewayError naming the field."""
    if not isinstance(value, list):
        return _text(value, path)
    return [_text(item, f"{path}[{index}]") for index, item in enumerate(_several(value, path))]


def ids(value: Any, path: str) -> Ids:
    """A list of token ids or a list of such lists, none empty. Raises GatewayError naming the field."""
    if not isinstance(value, list):
        raise bad_request(f"Expected 'array', got '{kind_of(value)}'", path)
    if not value or not isinstance(value[0], list):
        return _ids(value, path)
    return [_ids(item, f"{path}[{index}]") for index, item in enumerate(_several(value, path))]


def either(value: Any, path: str) -> Texts | Ids:
    """Any of the four forms, told apart by the first item. Raises GatewayError naming the field."""
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return ids(value, path)
    return texts(value, path)


def put(request: GenerationRequest, given: Texts | Ids, path: str) -> None:
    """Make what was decoded the input of ``request``."""
    request.prompt_path = path
    if isinstance(given, str):
        request.prompt_text = given
    elif isinstance(given[0], int):
        request.prompt_ids = given
    else:
        request.prompts = given


def _several(values: list[Any], path: str) -> list[Any]:
    if not values:
        raise bad_request("at least one prompt is needed", path)
    if len(values) > MAX_PROMPTS:
        raise bad_request(f"at most {MAX_PROMPTS} prompts are allowed in one request, not {len(values)}", path)
    return values


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise bad_request(f"Expected 'str', got '{kind_of(value)}'", path)
    if not value:
        raise bad_request("a prompt must not be empty", path)
    return value


def _ids(value: Any, path: str) -> list[int]:
    found = convert(value, list[Token], path)
    if not found:
        raise bad_request("a prompt must not be empty", path)
    return found
