"""The places of a JSON schema: its schemas, and what its references point to."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote

from smg.core.wire import join

Schema: TypeAlias = dict[str, Any]

# Where a schema has schemas: one, a list of them, or an object of them by name.
_ONE = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems", "contains"),
    *("unevaluatedItems", "not", "if", "then", "else"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every schema inside ``schema``, itself first, with its dotted path; booleans are left out."""
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for key in _ONE:
            waiting.append((join(path, key), node.get(key)))
        for key in _LISTS:
            if isinstance(items := node.get(key), list):
                waiting += ((join(path, f"{key}[{index}]"), item) for index, item in enumerate(items))
        for key in _NAMED:
            if isinstance(named := node.get(key), dict):
                waiting += ((join(join(path, key), name), item) for name, item in named.items())


def resolve(root: Mapping[str, Any], reference: str) -> dict[str, Any] | bool | None:
    """The schema that ``#/a/b`` points to; None when there is none."""
    if reference == "#":
        return dict(root) if not isinstance(root, dict) else root
    node: Any = root
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node if isinstance(node, dict | bool) else None
