"""Images beside a prompt that has their placeholders itself, as SGLang's ``image_data`` (spec api-and-ops 3)."""

from typing import Any

from smg._native import base64
from smg.core.errors import bad_request
from smg.core.request import MediaPart
from smg.core.wire import kind_of

_SCHEMES = ("http:", "https:", "data:", "file:")


def images(value: Any, prompts: int, path: str) -> list[list[MediaPart]]:
    """One list of images per prompt, of ``prompts``.

    For one prompt ``value`` is an image or a list of images; for several a list with an image, a list of images or null
    for each. An image is a URL (http, https, data, file) or base64, also as ``{"url": …}``.

    Raises:
        GatewayError: 400 naming the field.
    """
    if value is None:
        return []
    if prompts == 1:
        return [_some(value, path)]
    if not isinstance(value, list) or len(value) != prompts:
        raise bad_request(f"a list with one entry for each of the {prompts} prompts is needed", path)
    return [_some(item, f"{path}[{index}]") for index, item in enumerate(value)]


def _some(value: Any, path: str) -> list[MediaPart]:
    if value is None:
        return []
    if isinstance(value, list):
        return [_one(item, f"{path}[{index}]") for index, item in enumerate(value)]
    return [_one(value, path)]


def _one(value: Any, path: str) -> MediaPart:
    if isinstance(value, dict):
        value = value.get("url")
    if not isinstance(value, str) or not value:
        raise bad_request(f"Expected a URL or base64, got '{kind_of(value)}'", path)
    if value[:6].lower().startswith(_SCHEMES):
        return MediaPart("image", url=value)
    try:
        return MediaPart("image", data=base64.decode(value))
    except ValueError:
        raise bad_request("neither a URL (http, https, data, file) nor valid base64", path) from None
