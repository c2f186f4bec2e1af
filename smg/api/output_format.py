"""Decodes what bounds the output: at most one of regex, grammar, schema and response format (spec api-and-ops 1.5)."""

from typing import Any

import msgspec

from smg.core.errors import bad_request
from smg.core.request import Constraint
from smg.core.wire import Union, Unknown, join, kind_of


class TextFormat(msgspec.Struct):
    pass


class JsonObjectFormat(msgspec.Struct):
    pass


class JsonSchema(msgspec.Struct):
    name: str
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct):
    json_schema: JsonSchema


_FORMATS: Union[Any] = Union({"text": TextFormat, "json_object": JsonObjectFormat, "json_schema": JsonSchemaFormat})


def constraint(
    *,
    regex: str | None = None,
    ebnf: str | None = None,
    json_schema: Any = None,
    structural_tag: str | None = None,
    response_format: Any = None,
    path: str = "",
) -> Constraint | None:
    """The constraint of a request whose body has these fields at ``path``.

    ``json_schema`` is a schema as JSON text or as an object.

    Raises:
        GatewayError: more than one, or a bad one.
    """
    found: list[tuple[str, Constraint]] = []
    if regex is not None:
        found.append(("regex", Constraint("regex", regex)))
    if ebnf is not None:
        found.append(("ebnf", Constraint("grammar", ebnf)))
    if json_schema is not None:
        found.append(("json_schema", Constraint("json_schema", _schema(json_schema, join(path, "json_schema")))))
    if structural_tag is not None:
        found.append(("structural_tag", Constraint("structural_tag", structural_tag)))
    formatted = _response_format(response_format, join(path, "response_format"))
    if formatted is not None:
        found.append(("response_format", formatted))
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise bad_request(f"only one constraint on the output is allowed, not {names}", join(path, found[1][0]))
    return found[0][1] if found else None


def _schema(value: Any, path: str) -> str:
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if not isinstance(value, str):
        raise bad_request(f"Expected 'str' or 'object', got '{kind_of(value)}'", path)
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise bad_request("not a JSON text", path) from None
    if not isinstance(decoded, dict):
        raise bad_request("a JSON schema is an object", path)
    return value


def _response_format(value: Any, path: str) -> Constraint | None:
    if value is None:
        return None
    match _FORMATS.one(value, path):
        case JsonObjectFormat():
            return Constraint("json_object")
        case JsonSchemaFormat(json_schema=wire):
            if not wire.name:
                raise bad_request("a JSON schema needs a name", f"{path}.json_schema.name")
            return Constraint("json_schema", msgspec.json.encode(wire.schema or {}).decode())
        case Unknown(type=name):
            known = "text, json_object or json_schema"
            raise bad_request(f"unknown response format '{name}', expected {known}", f"{path}.type")
    return None
