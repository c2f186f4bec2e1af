"""Media beside a prompt that has their placeholders itself, as SGLang's ``image_data`` (spec api-and-ops 3)."""

from typing import Any

from smg._native import base64
from smg.core.errors import bad_request
from smg.core.request import MediaPart
from smg.core.wire import kind_of

_SCHEMES = ("http:", "https:", "data:", "file:")


def media(value: Any, prompts: int, path: str, kind: str) -> list[list[MediaPart]]:
    """One list of media of ``kind`` per prompt, of ``prompts``.

    For one prompt ``value`` is an item or a list of items; for several a list with an item, a list of items or null
    for each. An item is a URL (http, https, data, file) or base64, also as ``{"url": …}``.

    Raises:
        GatewayError: 400 naming the field.
    """
    if value is None:
        return []
    if prompts == 1:
        return [_some(value, path, kind)]
    if not isinstance(value, list) or len(value) != prompts:
        raise bad_request(f"a list with one entry for each of the {prompts} prompts is needed", path)
    return [_some(item, f"{path}[{index}]", kind) for index, item in enumerate(value)]


def _some(value: Any, path: str, kind: str) -> list[MediaPart]:
    if value is None:
        return []
    if isinstance(value, list):
        return [_one(item, f"{path}[{index}]", kind) for index, item in enumerate(value)]
    return [_one(value, path, kind)]


def _one(value: Any, path: str, kind: str) -> MediaPart:
    if isinstance(value, dict):
        value = value.get("url")
    if not isinstance(value, str) or not value:
        raise bad_request(f"Expected a URL or base64, got '{kind_of(value)}'", path)
    if value[:6].lower().startswith(_SCHEMES):
        return MediaPart(kind, url=value)
    try:
        return MediaPart(kind, data=base64.decode(value))
    except ValueError:
        raise bad_request("neither a URL (http, https, data, file) nor valid base64", path) from None
