"""A ``multipart/form-data`` body as its parts: read where they lie, and patched without touching the rest (RFC 7578).

What is not patched reaches the engine as it came: boundary, order, file names and types of the parts, every byte of a
file. Nothing of a file is copied.
"""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from smg.core.errors import GatewayError, bad_request

# It logs what is wrong with a body as a warning; here that is the client's 400.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

MEDIA_TYPE = "multipart/form-data"
# Far above what any form of an API has; parsing costs Python for each part.
_MAX_PARTS = 256
# A field that is read is a name or a switch, or at most a prompt.
_MAX_FIELD = 1 << 20


class FormPart(msgspec.Struct, frozen=True):
    """One part: ``start`` to ``end`` are its content's place in the body. ``filename`` is None for a plain field."""

    name: str
    filename: str | None
    content_type: str
    start: int
    end: int


class Form:
    """The parts of one body.

    Raises:
        GatewayError: ``unsupported_media_type`` (415): it is no such form by its content type; ``invalid_request``
            (400): it is not what its content type says.
    """

    def __init__(self, body: bytes, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        if kind.decode("latin-1").lower() != MEDIA_TYPE:
            raise GatewayError("unsupported_media_type", f"the content type must be {MEDIA_TYPE}")
        boundary = options.get(b"boundary", b"")
        if not boundary:
            raise GatewayError("invalid_request", "the content type names no boundary")
        self.content_type = content_type
        self._body = body
        self._parts = _parts(body, boundary)

    @property
    def size(self) -> int:
        """Bytes of the whole body."""
        return len(self._body)

    def part(self, name: str) -> FormPart | None:
        """The first part called ``name``."""
        return next((part for part in self._parts if part.name == name), None)

    def values(self, name: str) -> Iterator[str]:
        """The texts of all plain fields called ``name``. Raises GatewayError for one that is no text, or too long."""
        for part in self._parts:
            if part.name == name and part.filename is None:
                yield self._text(part)

    def text(self, name: str) -> str:
        """The text of the first field called ``name``, empty when there is none. Raises as ``values``."""
        return next(self.values(name), "")

    def content(self, part: FormPart) -> memoryview:
        """A part's bytes, where they lie in the body."""
        return memoryview(self._body)[part.start : part.end]

    def body(self, **replaced: str) -> list[bytes | memoryview]:
        """The whole again, in pieces: the first field of each of these names with another text, all else as it came."""
        places = [(part, value) for name, value in replaced.items() if (part := self.part(name)) is not None]
        if not places:
            return [self._body]
        pieces: list[bytes | memoryview] = []
        at = 0
        for part, value in sorted(places, key=lambda place: place[0].start):
            pieces += [memoryview(self._body)[at : part.start], value.encode()]
            at = part.end
        return [*pieces, memoryview(self._body)[at:]]

    def _text(self, part: FormPart) -> str:
        if part.end - part.start > _MAX_FIELD:
            raise bad_request(f"at most {_MAX_FIELD} bytes are allowed", part.name)
        try:
            return str(self.content(part), "utf-8")
        except UnicodeDecodeError:
            raise bad_request("the field is not UTF-8", part.name) from None


class _Collector:
    """Takes the parser's callbacks; the whole body is one write, so places it tells are places in the body."""

    def __init__(self) -> None:
        self.parts: list[FormPart] = []
        self.whole = False
        self._headers: dict[str, bytes] = {}
        self._name = ""
        self._place = (0, 0)

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._value,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        if len(self.parts) >= _MAX_PARTS:
            raise FormParserError(f"more than {_MAX_PARTS} parts")
        self._headers, self._place = {}, (0, 0)

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name = data[start:end].decode("latin-1").lower()

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._headers[self._name] = data[start:end]
        # Of an empty part nothing more is told; it lies behind the blank line that ends its headers.
        self._place = (end + 4, end + 4)

    def _data(self, _data: bytes, start: int, end: int) -> None:
        self._place = (start, end)

    def _end(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", b""))
        name, filename = options.get(b"name"), options.get(b"filename")
        if name is None:
            raise FormParserError("a part has no name")
        self.parts.append(
            FormPart(
                name.decode("utf-8", "replace"),
                None if filename is None else filename.decode("utf-8", "replace"),
                self._headers.get("content-type", b"").decode("latin-1"),
                *self._place,
            )
        )

    def _finish(self) -> None:
        self.whole = True


def _parts(body: bytes, boundary: bytes) -> list[FormPart]:
    found = _Collector()
    try:
        parser = MultipartParser(boundary, found.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise GatewayError("invalid_request", "the body is not a valid form", detail=str(error)) from None
    if not found.whole:
        raise GatewayError("invalid_request", "the form is cut off")
    return found.parts
