"""Forced calls as plain JSON: for models whose own form of calls is not known, or engines without structural tags (spec
text-pipeline 9.2)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.constraints.walk import Schema, subschemas
from smg.core.request import Constraint


def one(schema: Schema) -> Constraint:
    """The whole output is the arguments of the one tool there is, whose schema this is."""
    return _constraint(schema)


def several(tools: Mapping[str, Schema], *, once: bool) -> Constraint:
    """The output is an array of ``{"name", "parameters"}``; with ``once`` it has one element."""
    definitions: dict[str, Any] = {}
    calls = []
    for number, (name, schema) in enumerate(tools.items()):
        place = f"tool{number}"
        if any("$ref" in node for _, node in subschemas(schema)):
            definitions[place] = moved(schema, f"#/$defs/{place}")
            schema = {"$ref": f"#/$defs/{place}"}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"enum": [name]}, "parameters": schema},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    array: Schema = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if once:
        array["maxItems"] = 1
    if definitions:
        array["$defs"] = definitions
    return _constraint(array)


def moved(schema: Schema, place: str) -> Schema:
    """``schema`` with its references, for when it is at ``place`` of another: names can never clash that way."""
    copy: Schema = msgspec.json.decode(msgspec.json.encode(schema))
    for _, node in subschemas(copy):
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            node["$ref"] = place + reference[1:]
    return copy


def _constraint(schema: Schema) -> Constraint:
    return Constraint("json_schema", msgspec.json.encode(schema).decode())
