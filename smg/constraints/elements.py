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

_INTEGER = r"-?(0|[1-9][0-9]{0,17})"
_NUMBER = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?"
_PLAIN = re.compile(r"[^\s\"'<>&|{}=]{1,256}")
_KEYS_OF_REFERENCES = ("$defs", "definitions")


class Elements(msgspec.Struct, frozen=True):
    """``before`` and ``after`` stand around a value.

    In ``before``, ``KEY`` is the parameter's name, ``TEXT`` is ``true`` for a text and ``false`` for JSON, and ``TYPE``
    is the JSON type.
    """

    before: str
    after: str

    def piece(self, schema: Schema) -> Piece | None:
        """The arguments that ``schema`` describes, in its order; any text where they can't be told one by one.

        None: there are none to write.
        """
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not all(_PLAIN.fullmatch(key) for key in properties):
            return formats.ANY_TEXT
        if not properties:
            return None if schema.get("additionalProperties") is False else formats.ANY_TEXT
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        pieces = []
        for key, value in properties.items():
            element = self._element(key, value, schema)
            pieces.append(element if key in needed else formats.optional(element))
        return formats.sequence(*pieces)

    def text(self, key: str, grammar: ToolGrammar) -> Piece:
        """The one argument ``key``, a text of ``grammar``."""
        before = self.before.replace("KEY", key).replace("TEXT", "true").replace("TYPE", "string")
        return formats.tag(before, custom.text(grammar), self.after)

    def _element(self, key: str, value: Any, root: Schema) -> Piece:
        kind, content = _value(value, root)
        before = self.before.replace("KEY", key)
        before = before.replace("TEXT", "true" if kind == "string" else "false").replace("TYPE", kind)
        return formats.tag(before, content, self.after)


def _value(value: Any, root: Schema) -> tuple[str, Piece]:
    """The type of a value and what may be written for it."""
    for _ in range(8):
        reference = value.get("$ref") if isinstance(value, dict) else None
        if not isinstance(reference, str):
            break
        value = resolve(root, reference)
    if not isinstance(value, dict):
        return "string", formats.ANY_TEXT
    texts = [value["const"]] if "const" in value else value.get("enum")
    if isinstance(texts, list) and texts and all(isinstance(text, str) and text for text in texts):
        return "string", formats.either(*map(formats.const, texts))
    match value.get("type"):
        case "integer":
            return "number", formats.regex(_INTEGER)
        case "number":
            return "number", formats.regex(_NUMBER)
        case "boolean":
            return "boolean", formats.regex("true|false")
        case "object" | "array" as kind:
            return kind, formats.json_schema(_alone(value, root))
    return "string", formats.ANY_TEXT


def _alone(value: Schema, root: Schema) -> Schema:
    """``value`` as a schema by itself: with the definitions that it may refer to."""
    definitions = {key: root[key] for key in _KEYS_OF_REFERENCES if key in root}
    references = [node["$ref"] for _, node in subschemas(value) if isinstance(node.get("$ref"), str)]
    if all(any(target.startswith(f"#/{key}/") for key in definitions) for target in references):
        return {**definitions, **value} if references else value
    # It refers to the arguments as a whole, which are no JSON here.
    return {"type": value["type"]}
