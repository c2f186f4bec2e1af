"""What type an argument has when the format writes it as bare text: the caller's JSON schema says so (spec parsers 3,
case TP-05)."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from smg.core.request import Tool
from smg.parsing.engine import json_text, python_text
from smg.parsing.engine.cursor import Malformed

MAX_REFS = 32  # references and alternatives that are followed in one schema

_ALIASES = {
    "str": "string",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "enum": "string",
    "bool": "boolean",
    "float": "number",
    "double": "number",
    "list": "array",
    "dict": "object",
    "map": "object",
    "none": "null",
}
_KNOWN = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_PREFIXES = (("int", "integer"), ("uint", "integer"), ("long", "integer"), ("short", "integer"), ("num", "number"))
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0+)?")
_NULLS = ("null", "None")
_BOOLEANS = {"true": "true", "True": "true", "1": "true", "false": "false", "False": "false", "0": "false"}


class Kinds:
    """The JSON types a value may have; none when nobody says. ``choices`` are the strings of an enum."""

    __slots__ = ("choices", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.choices: set[str] = set()

    @property
    def plain_string(self) -> bool:
        """Whether any text is the value as it stands, so that it can be passed on while it arrives."""
        return self.names == {"string"} and not self.choices


def kinds_of(tool: Tool | None, key: str) -> Kinds:
    """The types of argument ``key`` of ``tool``."""
    schema = tool.schema if tool is not None else {}
    return kinds_in(member(schema, schema, key), schema)


def kinds_in(schema: Any, root: Mapping[str, Any]) -> Kinds:
    """The types of a value with ``schema``, which is somewhere in ``root``."""
    kinds = Kinds()
    for one in _alternatives(schema, root):
        _collect(one, kinds)
    return kinds


def member(schema: Any, root: Mapping[str, Any], key: str) -> Any:
    """What ``schema`` says of an object's member ``key``; None: nothing."""
    alternatives = list(_alternatives(schema, root))
    for one in alternatives:
        properties = one.get("properties")
        if isinstance(properties, Mapping) and properties.get(key) is not None:
            return properties[key]
    return next((one["additionalProperties"] for one in alternatives if "additionalProperties" in one), None)


def items(schema: Any, root: Mapping[str, Any]) -> Any:
    """What ``schema`` says of an array's items; None: nothing."""
    return next((one["items"] for one in _alternatives(schema, root) if "items" in one), None)


def _alternatives(own: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """``own`` and every schema it refers to or chooses from."""
    todo = [own]
    for _ in range(MAX_REFS):
        if not todo:
            return
        schema = todo.pop()
        if not isinstance(schema, Mapping):
            continue
        yield schema
        for word in ("anyOf", "oneOf", "allOf"):
            members = schema.get(word)
            if isinstance(members, list):
                todo += members
        reference = schema.get("$ref")
        if isinstance(reference, str):
            todo.append(_target(reference, root))


def _target(reference: str, root: Any) -> Any:
    if not reference.startswith("#/"):
        return None
    for step in reference[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        root = root.get(name) if isinstance(root, Mapping) else None
    return root


def _collect(schema: Mapping[str, Any], kinds: Kinds) -> None:
    declared = schema.get("type")
    for name in declared if isinstance(declared, list) else [declared]:
        if isinstance(name, str) and (kind := _kind(name.lower())):
            kinds.names.add(kind)
    if schema.get("nullable") is True:
        kinds.names.add("null")
    members = schema.get("enum") if isinstance(schema.get("enum"), list) else []
    if "const" in schema:
        members = [*(members or []), schema["const"]]
    for member in members or []:
        if isinstance(member, str):
            kinds.choices.add(member)
        if declared is None:
            kinds.names.add(_kind_of_value(member))


def _kind(name: str) -> str | None:
    if name in _KNOWN:
        return name
    if name in _ALIASES:
        return _ALIASES[name]
    return next((kind for prefix, kind in _PREFIXES if name.startswith(prefix)), None)


def _kind_of_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def coerce(text: str, kinds: Kinds) -> str:
    """JSON of the value that the model wrote as ``text``."""
    bare = text.strip()
    if not kinds.names:
        return _undeclared(bare) or quote(text)
    if "null" in kinds.names and bare in _NULLS:
        return "null"
    if "integer" in kinds.names and _INTEGER.fullmatch(bare):
        return bare
    if "number" in kinds.names and json_text.NUMBER.fullmatch(bare):
        return bare
    if "boolean" in kinds.names and bare in _BOOLEANS:
        return _BOOLEANS[bare]
    for kind, opener in (("object", "{"), ("array", "[")):
        if kind in kinds.names and bare.startswith(opener):
            found = bare if is_json(bare) else _python(bare)
            if found:
                return found
    return quote(_unwrapped(text, kinds))


def quote(text: str) -> str:
    """``text`` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def json_or_text(text: str) -> str:
    """JSON of a value that the format marks as JSON: itself, or a string when it is none."""
    bare = text.strip()
    return bare if is_json(bare) else quote(text)


def is_json(text: str) -> bool:
    """Whether ``text`` is one JSON value. Numbers are not converted, so that any size is fine."""
    try:
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(name)


def _undeclared(bare: str) -> str:
    """A whole JSON value that is no string keeps its type, and so do Python's three words."""
    if bare in json_text.WORDS:
        return json_text.WORDS[bare]
    return bare if bare and bare[0] in "{[-0123456789" and is_json(bare) else ""


def _python(bare: str) -> str:
    try:
        return python_text.to_json(bare)
    except Malformed:
        return ""


def _unwrapped(text: str, kinds: Kinds) -> str:
    """A string that the model put in quotes, if only without them it is one of the choices."""
    if kinds.choices and text not in kinds.choices and len(text) > 1 and text[0] == text[-1] == '"' and is_json(text):
        inner: str = json.loads(text)
        if inner in kinds.choices:
            return inner
    return text
