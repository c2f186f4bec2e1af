"""Arguments in a row, as ``city="Oslo", days=3`` or ``city:<|"|>Oslo<|"|>,days:3`` (spec parsers 6.5, 9).

Texts are JSON strings, which Python reads too, or stand between quotes of the family's own. What is inside of lists and
objects is JSON where the family's readers take that.
"""

from typing import Any

import msgspec

from smg.constraints import custom, formats
from smg.constraints.elements import alone, ordered, value_of
from smg.constraints.formats import Piece
from smg.constraints.walk import Schema
from smg.core.request import ToolGrammar

MAX_OPTIONAL = 16  # arguments none of which must come: the first of them may be any
MAX_DEPTH = 4  # of objects inside objects


class Inline(msgspec.Struct, frozen=True):
    """``before`` stands before a value, with ``KEY`` for its name, and ``separator`` between arguments.

    ``quote`` stands on both sides of a text; empty: texts are JSON strings. ``words``: truth values are Python's.
    """

    before: str
    separator: str
    quote: str = ""
    words: bool = False

    def piece(self, schema: Schema) -> Piece | None:
        """The arguments that ``schema`` describes; any text where they can't be told. None: there are none."""
        return self._members(schema, schema, 0)

    def text(self, key: str, grammar: ToolGrammar) -> Piece:
        """The one argument ``key``, a text of ``grammar``."""
        before, quote = self.before.replace("KEY", key), self.quote or '"'
        inner = custom.text(grammar) if self.quote else custom.json_string(grammar)
        return formats.sequence(formats.const(before + quote), inner, formats.const(quote))

    def _members(self, schema: Schema, root: Schema, depth: int) -> Piece | None:
        found = ordered(schema)
        if found is None:
            return formats.ANY_TEXT
        members = [(self._member(key, value, root, depth), needed) for key, value, needed in found]
        members.sort(key=lambda member: not member[1])
        if not members:
            return None if schema.get("additionalProperties") is False else formats.ANY_TEXT
        if not members[0][1] and len(members) > MAX_OPTIONAL:
            return formats.ANY_TEXT
        return self._from(members)

    def _from(self, members: list[tuple[Piece, bool]]) -> Piece:
        """Some of ``members``, of which the first may be left out if it need not come."""
        (first, needed), rest = members[0], members[1:]
        more = [formats.sequence(formats.const(self.separator), piece) for piece, _ in rest]
        with_first = formats.sequence(
            first, *(piece if must else formats.optional(piece) for piece, (_, must) in zip(more, rest, strict=True))
        )
        if needed:
            return with_first
        return formats.either(with_first, self._from(rest)) if rest else formats.optional(with_first)

    def _member(self, key: str, value: Any, root: Schema, depth: int) -> Piece:
        return formats.sequence(formats.const(self.before.replace("KEY", key)), self._value(value, root, depth))

    def _value(self, value: Any, root: Schema, depth: int) -> Piece:
        kind, content, schema = value_of(value, root)
        match kind:
            case "number":
                return content
            case "boolean":
                return formats.regex("True|False") if self.words else content
            case "object" if self.quote and schema.get("properties") and depth < MAX_DEPTH:
                inner = self._members(schema, root, depth + 1)
                return formats.tag("{", inner, "}") if inner is not None else formats.const("{}")
        if not self.quote or kind != "string":
            return formats.json_schema(alone(schema, root))
        if content != formats.ANY_TEXT:
            texts = [each["value"] for each in content.get("elements", [content])]
            return formats.either(*(formats.const(f"{self.quote}{text}{self.quote}") for text in texts))
        text = formats.tag(self.quote, formats.ANY_TEXT, self.quote)
        if schema.get("type") == "string":
            return text
        return formats.either(text, formats.json_schema(alone(schema, root)))
