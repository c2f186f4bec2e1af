"""Decodes content blocks that say something: text, images, documents (spec text-pipeline 14)."""

from collections.abc import Iterator
from typing import Any

from smg._native import base64
from smg.api.anthropic_messages import types
from smg.core.errors import GatewayError, bad_request
from smg.core.request import MediaPart, TextPart
from smg.core.wire import Union, Unknown

BLOCKS: Union[Any] = Union(
    {
        "text": types.TextBlock,
        "image": types.ImageBlock,
        "document": types.DocumentBlock,
        "thinking": types.ThinkingBlock,
        "tool_use": types.ToolUseBlock,
        "tool_result": types.ToolResultBlock,
    },
    default="text",
)
_IMAGES: Union[Any] = Union({"base64": types.Base64Source, "url": types.UrlSource})
_DOCUMENTS: Union[Any] = Union({"text": types.TextSource, "content": types.ContentSource})


def parts(content: str | list[Any], path: str) -> Iterator[TextPart | MediaPart]:
    """Decode a text, or blocks that say something. Raises GatewayError naming the block, as ``said``."""
    if isinstance(content, str):
        yield from _text(content)
        return
    for index, wire in enumerate(BLOCKS.many(content, path)):
        yield from said(wire, f"{path}[{index}]")


def said(wire: Any, path: str) -> Iterator[TextPart | MediaPart]:
    """What one block says. Texts that are empty say nothing.

    Raises:
        GatewayError: 400: the block is of a kind that has no place here, or its source is.
    """
    match wire:
        case types.TextBlock():
            yield from _text(wire.text)
        case types.ImageBlock():
            yield _image(wire, path)
        case types.DocumentBlock():
            yield from _document(wire, path)
        case _:
            raise misplaced(wire, path)


def misplaced(wire: Any, path: str) -> GatewayError:
    """The error for a block that has no place where it is."""
    kind = wire.type if isinstance(wire, Unknown) else wire.kind
    return bad_request(f"content blocks of type '{kind}' are not supported here", path)


def _text(text: str) -> Iterator[TextPart]:
    if text:
        yield TextPart(text)


def _image(wire: types.ImageBlock, path: str) -> MediaPart:
    match source := _IMAGES.one(wire.source, f"{path}.source"):
        case types.UrlSource():
            return MediaPart("image", url=source.url, path=path)
        case types.Base64Source():
            try:
                data = base64.decode(source.data)
            except ValueError:
                raise bad_request("not valid base64", f"{path}.source.data") from None
            if not data:
                raise bad_request("the image is empty", f"{path}.source.data")
            return MediaPart("image", data=data, media_type=source.media_type, path=path)
    raise bad_request(f"images from a source of type '{source.type}' are not supported", f"{path}.source")


def _document(wire: types.DocumentBlock, path: str) -> Iterator[TextPart | MediaPart]:
    """A document as text, under its title and what the client says of it."""
    head = [text for text in (wire.title, wire.context) if text]
    match source := _DOCUMENTS.one(wire.source, f"{path}.source"):
        case types.TextSource():
            yield from _text("\n\n".join([*head, source.data]))
        case types.ContentSource():
            yield from _text("\n\n".join(head))
            yield from parts(source.content, f"{path}.source.content")
        case _:
            message = f"documents from a source of type '{source.type}' are not supported, only text"
            raise bad_request(message, f"{path}.source")
