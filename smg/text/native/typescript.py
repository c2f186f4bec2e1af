"""Tools as TypeScript declarations, which the templates of Kimi K2.5 take as ``tools_ts_str`` (spec text-pipeline 2.6).

Required properties come before optional ones, each sorted by name; descriptions and limits become comments.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from smg.text.native.base import functions

MAX_DEPTH = 32

_STEP = "  "
# What of a schema is told in a comment, by type.
_LIMITS = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}
_NAMES = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{}",
    "array": "Array<any>",
}
_ENUM_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
}


class Inexpressible(Exception):
    """A schema that has no TypeScript form here; the template then shows the tools as JSON."""


def declare(tools: Sequence[Mapping[str, Any]]) -> str:
    """Write the declarations of ``tools`` (chat completions' ``{type, function}`` objects).

    Raises:
        Inexpressible: a parameter's schema is of a kind that is not known, or refers to what is not there.
    """
    try:
        shown = "\n".join(_Function(function).text() for function in functions(tools))
    except (AttributeError, KeyError, TypeError) as error:
        raise Inexpressible(f"a schema is malformed: {error}") from None
    return f"# Tools\n\n## functions\nnamespace functions {{\n{shown}\n}}\n"


class _Function:
    """One function; ``_definitions`` are its named schemas, ``_itself`` whether one refers to the whole (``#``)."""

    def __init__(self, function: Mapping[str, Any]) -> None:
        self._name = function.get("name", "function")
        self._description = function.get("description") or ""
        self._parameters = function.get("parameters") or {}
        self._definitions: dict[str, Any] = {}
        self._itself = False
        self._collect(self._parameters)

    def text(self) -> str:
        whole = self._object(self._parameters, "", 0)
        named = {name: self._type(schema, "", 0) for name, schema in self._definitions.items()}
        lines = [f"interface parameters {self._unsorted()}"] if self._itself else []
        for name, shown in named.items():
            schema = self._definitions[name]
            lines.append(_comment(_described(schema), "") + f"interface {name} {shown}")
        lines.append(_comment(self._description, "")[:-1])
        lines.append(f"type {self._name} = (_: {'parameters' if self._itself else whole}) => any;")
        return "\n".join(line for line in lines if line)

    def _unsorted(self) -> str:
        """The parameters when they refer to themselves: as they are listed."""
        properties = self._parameters.get("properties") or {}
        required = set(self._parameters.get("required") or ())
        fields = [self._field(name, schema, name in required, _STEP, 0) for name, schema in properties.items()]
        return "{\n" + ",\n".join(fields) + "\n}" if fields else "{}"

    def _collect(self, schema: Any, depth: int = 0) -> None:
        """Find the definitions and references of ``schema``, wherever they are."""
        if depth > MAX_DEPTH:
            return
        if isinstance(schema, dict):
            definitions = schema.get("$defs")
            if isinstance(definitions, dict):
                self._definitions |= definitions
            self._itself |= schema.get("$ref") == "#"
        for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            self._collect(inner, depth + 1)

    def _type(self, schema: Any, indent: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            return "any"
        if isinstance(schema, bool):
            return "any" if schema else "null"
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " | ".join(self._type(choice, indent, depth + 1) for choice in schema[key])
        if "enum" in schema:
            return _enum(schema)
        kind = schema.get("type")
        if isinstance(kind, list):
            return " | ".join(_NAMES[name] for name in kind)
        match kind:
            case "object":
                return self._object(schema, indent, depth)
            case "array":
                return self._array(schema, indent, depth)
            case "integer":
                return "number"
            case str():
                return kind
            case None if not schema:
                return "any"
        raise Inexpressible("a schema has no type")

    def _reference(self, target: str) -> str:
        if target == "#":
            return "parameters"
        name = target.removeprefix("#/$defs/")
        if name == target or name not in self._definitions:
            raise Inexpressible(f"nothing is at {target}")
        return name

    def _array(self, schema: Mapping[str, Any], indent: str, depth: int) -> str:
        item = schema.get("items") or {}
        comment = _comments(item, indent + _STEP)
        if not comment:
            return f"Array<{self._type(item, indent, depth + 1)}>"
        shown = self._type(item, indent + _STEP, depth + 1)
        return f"Array<\n{comment}{indent}{_STEP}{shown}\n{indent}>"

    def _object(self, schema: Mapping[str, Any], indent: str, depth: int) -> str:
        inner = indent + _STEP
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        names = sorted(properties, key=lambda name: (name not in required, name))
        fields = [self._field(name, properties[name], name in required, inner, depth) for name in names]
        more = schema.get("additionalProperties")
        if more is not None:
            shown = (
                {True: "any", False: "never"}[more] if isinstance(more, bool) else self._type(more, inner, depth + 1)
            )
            fields.append(f"{inner}[k: string]: {shown}")
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}" if fields else "{}"

    def _field(self, name: str, schema: Any, required: bool, indent: str, depth: int) -> str:
        comment = _comments(schema, indent)
        default = schema.get("default") if isinstance(schema, dict) else None
        if default is not None:
            number = isinstance(default, int | float)
            comment += f"{indent}// Default: {default if number else json.dumps(default, ensure_ascii=False)}\n"
        return f"{comment}{indent}{name}{'' if required else '?'}: {self._type(schema, indent, depth + 1)}"


def _enum(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [name for name in kind if name != "null"]
        if len(others) != 1 or len(kind) > 2:
            raise Inexpressible("an enum has several types")
        kind = others[0]
    allowed = _ENUM_TYPES.get(str(kind))
    for value in schema["enum"]:
        if value is not None and allowed is not None and not isinstance(value, allowed):
            raise Inexpressible(f"an enum of type {kind} has another value")
    return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in schema["enum"])


def _described(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""


def _comment(text: str, indent: str) -> str:
    return "".join(f"{indent}// {line}\n" if line else "\n" for line in text.split("\n")) if text else ""


def _comments(schema: Any, indent: str) -> str:
    """The description of a schema and its limits."""
    out = _comment(_described(schema), indent)
    if not isinstance(schema, dict) or any(key in schema for key in ("$ref", "anyOf", "oneOf", "enum")):
        return out
    kind = schema.get("type")
    limits = _LIMITS.get(kind, ()) if isinstance(kind, str) else ()
    told = ", ".join(f"{name}: {schema[name]}" for name in limits if name in schema)
    return out + (f"{indent}// {told}\n" if told else "")
