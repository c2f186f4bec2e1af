"""Structural tags that clients send themselves, in either of the forms engines know (spec parsers 7)."""

from typing import Any

import msgspec

from smg.constraints import schema as schemas
from smg.core.errors import bad_request
from smg.core.request import Constraint
from smg.core.wire import join


def check_tag(value: Any, path: str) -> Constraint:
    """The constraint of a structural tag, an object or its JSON text: ``format``, or ``structures`` and ``triggers``.

    Schemas anywhere in it are held to the same rules as a response format's. What else it says is for the engine.

    Raises:
        GatewayError: ``invalid_value`` (400) naming the field.
    """
    tag = schemas.parse(value, path)
    schemas.bounded(tag, path)
    if isinstance(tag.get("format"), dict):
        places = _of_format(tag["format"], join(path, "format"))
    elif isinstance(tag.get("structures"), list) and isinstance(tag.get("triggers"), list):
        places = [
            (join(path, f"structures[{index}].schema"), item.get("schema"))
            for index, item in enumerate(tag["structures"])
            if isinstance(item, dict)
        ]
    else:
        raise bad_request("a structural tag has a format, or structures and triggers", path)
    for where, found in places:
        if found is not None and not isinstance(found, bool):
            schemas.check(schemas.parse(found, where), where)
    return Constraint("structural_tag", msgspec.json.encode({"type": "structural_tag"} | tag).decode())


def _of_format(format_: Any, path: str) -> list[tuple[str, Any]]:
    """The schemas below ``format_`` and where they are."""
    found: list[tuple[str, Any]] = []
    waiting: list[tuple[str, Any]] = [(path, format_)]
    while waiting:
        where, node = waiting.pop()
        if isinstance(node, list):
            waiting += ((f"{where}[{index}]", item) for index, item in enumerate(node))
        elif isinstance(node, dict):
            if "json_schema" in node:
                found.append((join(where, "json_schema"), node["json_schema"]))
            waiting += ((join(where, key), item) for key, item in node.items() if key != "json_schema")
    return found
