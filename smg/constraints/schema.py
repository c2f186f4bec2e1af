"""Looks at a JSON schema before an engine does: nonsense, references, size, and whether it can ever end (case SO-01).

Converters in engines recurse over a schema, and some die of one that they should have refused. All walks here are
iterative, and bounded before they begin.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec

from smg.constraints.finite import endless, regress
from smg.constraints.walk import Schema, resolve, subschemas
from smg.core.errors import bad_request
from smg.core.wire import join

MAX_BYTES = 1 << 20  # of a schema's JSON text
MAX_DEPTH = 64  # of nested objects and arrays
MAX_NODES = 10_000  # objects and arrays in all
# What a client is told of an unfitting value, in characters.
_SHOWN = 200

_REMOTE = ("$dynamicRef", "$recursiveRef")


def check(schema: Schema, path: str) -> None:
    """Refuse a schema that nobody can follow; ``path`` is where the body has it.

    Raises:
        GatewayError: ``invalid_value`` (400), with ``param`` at or below ``path``.
    """
    bounded(schema, path)
    _valid(schema, path)
    for where, node in subschemas(schema):
        _references(schema, node, join(path, where))
    if (name := regress(schema)) is not None:
        raise bad_request(f"the schema refers to itself without an end, at {name}", path)
    if endless(schema):
        raise bad_request("the schema can never end: every value that it allows has an endless one inside", path)


def check_parameters(schema: Schema, path: str) -> None:
    """Refuse a schema of a function's arguments that are no object; ``path`` is where the body has it.

    Raises:
        GatewayError: ``invalid_value`` (400).
    """
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise bad_request("the arguments of a function are an object", f"{path}.type")


def strict(schema: Schema) -> Schema:
    """``schema`` as strict mode means it: an object has no properties but those that are named.

    Where a schema says something of further properties itself, that stays.
    """
    copy: Schema = msgspec.json.decode(msgspec.json.encode(schema))
    for _, node in subschemas(copy):
        if "properties" in node and node.get("type", "object") in ("object", ["object", "null"], ["null", "object"]):
            node.setdefault("additionalProperties", False)
    return copy


def bounded(schema: Schema, path: str) -> None:
    """Refuse what is too deep or too large to be walked over. Raises GatewayError at ``path``."""
    level: list[Any] = [schema]
    nodes = 0
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise bad_request(f"the schema has more than {MAX_NODES} parts", path)
        level = [item for node in level for item in _values(node) if isinstance(item, dict | list)]
        if not level:
            break
    else:
        raise bad_request(f"the schema is nested more than {MAX_DEPTH} levels deep", path)
    if len(msgspec.json.encode(schema)) > MAX_BYTES:
        raise bad_request(f"the schema is larger than {MAX_BYTES} bytes", path)


def _values(node: Any) -> Iterator[Any]:
    yield from node.values() if isinstance(node, dict) else node


def _valid(schema: Schema, path: str) -> None:
    """Hold ``schema`` against the meta-schema of its draft (2020-12 unless it names another)."""
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        where = path
        for step in error.instance_path:
            where = join(where, f"[{step}]" if isinstance(step, int) else str(step))
        raise bad_request(f"not a JSON schema: {shortened(error.message)}", where) from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise bad_request(f"not a JSON schema: {shortened(str(error))}", path) from None


def _references(root: Schema, node: Mapping[str, Any], path: str) -> None:
    for key in _REMOTE:
        if key in node:
            raise bad_request(f"{key} is not supported", join(path, key))
    target = node.get("$ref")
    if target is None:
        return
    if not isinstance(target, str) or not target.startswith("#"):
        raise bad_request("only references inside the schema ('#/…') are supported", join(path, "$ref"))
    if resolve(root, target) is None:
        raise bad_request(f"there is no '{shortened(target)}' in the schema", join(path, "$ref"))


def parse(value: Any, path: str) -> Schema:
    """A schema that came as an object or as JSON text. Raises GatewayError naming the field."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise bad_request("a JSON schema is an object, or the JSON text of one", path)
    if len(value) > MAX_BYTES:
        raise bad_request(f"the schema is larger than {MAX_BYTES} bytes", path)
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise bad_request("not a JSON text", path) from None
    if not isinstance(decoded, dict):
        raise bad_request("a JSON schema is an object", path)
    return decoded


def shortened(text: str) -> str:
    """``text`` for an error message."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
