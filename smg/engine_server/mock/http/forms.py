"""Forms as a mock engine reads them (RFC 7578): small, and by itself, so that it tells what really has arrived."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_OPTION = re.compile(r'(\w+)="([^"]*)"')


class Part(NamedTuple):
    """One part of a form; ``filename`` is None for a plain field."""

    name: str
    filename: str | None
    content_type: str
    content: bytes


def parts(content_types: Sequence[str], body: bytes) -> list[Part]:
    """The parts of a body whose headers ``content-type`` are these. Raises ValueError when it is no form."""
    (content_type,) = content_types
    boundary = b"--" + content_type.partition("boundary=")[2].strip('"').encode()
    first, *middle, last = body.split(boundary)
    if first or not middle or last.strip() != b"--":
        raise ValueError("the body is no form")
    out = []
    for part in middle:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head.decode().split("\r\n"))}
        options = dict(_OPTION.findall(headers["content-disposition"]))
        out.append(Part(options["name"], options.get("filename"), headers.get("content-type", ""), content[:-2]))
    return out


def fields(content_types: Sequence[str], body: bytes) -> dict[str, Any]:
    """The plain fields by name, switches as such. Raises ValueError as ``parts``."""
    switches = {"true": True, "false": False}
    texts = {part.name: part.content.decode() for part in parts(content_types, body) if part.filename is None}
    return {name: switches.get(text, text) for name, text in texts.items()}
