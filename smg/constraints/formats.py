"""The pieces of a structural tag, as engines read them (spec parsers 7): plain objects that become its JSON text."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from smg.constraints.walk import Schema
from smg.core.request import Constraint

Piece: TypeAlias = dict[str, Any]

ANY_TEXT: Piece = {"type": "any_text"}


def const(text: str) -> Piece:
    return {"type": "const_string", "value": text}


def regex(pattern: str) -> Piece:
    return {"type": "regex", "pattern": pattern}


def grammar(text: str) -> Piece:
    return {"type": "grammar", "grammar": text}


def json_schema(schema: Schema | bool) -> Piece:
    return {"type": "json_schema", "json_schema": schema}


def sequence(*pieces: Piece) -> Piece:
    return pieces[0] if len(pieces) == 1 else {"type": "sequence", "elements": list(pieces)}


def either(*pieces: Piece) -> Piece:
    return pieces[0] if len(pieces) == 1 else {"type": "or", "elements": list(pieces)}


def optional(piece: Piece) -> Piece:
    return {"type": "optional", "content": piece}


def star(piece: Piece) -> Piece:
    return {"type": "star", "content": piece}


def tag(begin: str, content: Piece, end: str) -> Piece:
    """``content`` between two texts; any text as content ends where ``end`` first comes."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def separated(tags: Sequence[Piece], separator: str, *, once: bool) -> Piece:
    """One of ``tags`` at least, or with ``once`` exactly one."""
    return {
        "type": "tags_with_separator",
        "tags": list(tags),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": once,
    }


def triggered(triggers: Sequence[str], tags: Sequence[Piece], *, forced: bool, once: bool) -> Piece:
    """Free text in which each of ``triggers`` begins one of ``tags``.

    With ``forced`` a tag comes first, and with ``once`` nothing comes after it.
    """
    return {
        "type": "triggered_tags",
        "triggers": list(triggers),
        "tags": list(tags),
        "at_least_one": forced,
        "stop_after_first": once,
    }


def constraint(piece: Piece) -> Constraint:
    """The constraint that a whole output is ``piece``."""
    text = msgspec.json.encode({"type": "structural_tag", "format": piece}).decode()
    return Constraint("structural_tag", text)


def piece_of(given: Constraint) -> Piece | None:
    """What ``given`` is inside a structural tag; None for a tag of the old form, which can't be inside another."""
    match given.kind:
        case "json_schema":
            return json_schema(msgspec.json.decode(given.value))
        case "json_object":
            return json_schema({"type": "object"})
        case "regex":
            return regex(given.value)
        case "grammar":
            return grammar(given.value)
        case "choice":
            return either(*map(const, given.choices))
    inner: Piece | None = msgspec.json.decode(given.value).get("format")
    return inner
