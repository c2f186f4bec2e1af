"""Arguments that a family writes one by one, as ``<parameter=city>Oslo</parameter>`` (spec parsers 6.4, 7).

Texts stand there as they are and everything else as JSON, so each value is constrained by its own schema.
"""

import re
from typing import Any

import msgspec

from smg.constraints import custom, formats
from smg.constraints.formats import Piece
from smg.constraints.walk import Schema, resolve, subschemas
from smg.core.request import ToolGrammar

MAX_DEPTH = 8  # of elements inside elements

_INTEGER = r"-?(0|[1-9][0-9]{0,17})"
_NUMBER = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?"
_PLAIN = re.compile(r"[^\s\"'<>&|{}=]{1,256}")
_KEYS_OF_REFERENCES = ("$defs", "definitions")


class Elements(msgspec.Struct, frozen=True):
    """``before`` and ``after`` stand around a value.

    In both, ``KEY`` is the parameter's name; in ``before``, ``TEXT`` is ``true`` for a text and ``false`` for JSON, and
    ``TYPE`` is the JSON type. With ``item`` (a key) objects and arrays are elements too, those in an array so named.
    """

    before: str
    after: str
    item: str = ""

    def piece(self, schema: Schema) -> Piece | None:
        """The arguments that ``schema`` describes, in its order; any text where they can't be told one by one.

        None: there are none to write.
        """
        return self._members(schema, schema, 0)

    def text(self, key: str, grammar: ToolGrammar) -> Piece:
        """The one argument ``key``, a text of ``grammar``."""
        return self._element(key, "string", custom.text(grammar))

    def _members(self, schema: Schema, root: Schema, depth: int) -> Piece | None:
        found = ordered(schema)
        if found is None:
            return formats.ANY_TEXT
        if not found:
            return None if schema.get("additionalProperties") is False else formats.ANY_TEXT
        pieces = []
        for key, value, needed in found:
            element = self._element(key, *self._value(value, root, depth))
            pieces.append(element if needed else formats.optional(element))
        return formats.sequence(*pieces)

    def _element(self, key: str, kind: str, content: Piece) -> Piece:
        before = self.before.replace("KEY", key)
        before = before.replace("TEXT", "true" if kind == "string" else "false").replace("TYPE", kind)
        return formats.tag(before, content, self.after.replace("KEY", key))

    def _value(self, value: Any, root: Schema, depth: int) -> tuple[str, Piece]:
        kind, content, schema = value_of(value, root)
        if not self.item or kind not in ("object", "array"):
            return kind, content
        if depth == MAX_DEPTH:
            return kind, formats.ANY_TEXT
        if kind == "array":
            one = self._element(self.item, *self._value(schema.get("items", {}), root, depth + 1))
            return kind, formats.star(one)
        inner = self._members(schema, root, depth + 1)
        return kind, formats.const("") if inner is None else inner


def ordered(schema: Schema) -> list[tuple[str, Any, bool]] | None:
    """The properties of ``schema``: name, schema, and whether it must come. None where they can't be written."""
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(_PLAIN.fullmatch(key) for key in properties):
        return None
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    return [(key, value, key in needed) for key, value in properties.items()]


def value_of(value: Any, root: Schema) -> tuple[str, Piece, Schema]:
    """The type of a value, what may be written for it, and its schema. What has no one type counts as a text."""
    for _ in range(8):
        reference = value.get("$ref") if isinstance(value, dict) else None
        if not isinstance(reference, str):
            break
        value = resolve(root, reference)
    if not isinstance(value, dict):
        return "string", formats.ANY_TEXT, {}
    texts = [value["const"]] if "const" in value else value.get("enum")
    if isinstance(texts, list) and texts and all(isinstance(text, str) and text for text in texts):
        return "string", formats.either(*map(formats.const, texts)), value
    match value.get("type"):
        case "integer":
            return "number", formats.regex(_INTEGER), value
        case "number":
            return "number", formats.regex(_NUMBER), value
        case "boolean":
            return "boolean", formats.regex("true|false"), value
        case "object" | "array" as kind:
            return kind, formats.json_schema(alone(value, root)), value
    return "string", formats.ANY_TEXT, value


def alone(value: Schema, root: Schema) -> Schema:
    """``value`` as a schema by itself: with the definitions that it may refer to."""
    definitions = {key: root[key] for key in _KEYS_OF_REFERENCES if key in root}
    references = [node["$ref"] for _, node in subschemas(value) if isinstance(node.get("$ref"), str)]
    if all(any(target.startswith(f"#/{key}/") for key in definitions) for target in references):
        return {**definitions, **value} if references else value
    # It refers to the arguments as a whole, which are no JSON here.
    return {"type": value["type"]} if "type" in value else {}
