"""Decoding of client bodies: typed, lenient where clients differ, exact about what is wrong and where.

Rules (all dialects): a missing union tag has a default, an unknown tag becomes ``Unknown`` and the dialect decides;
integers accept ``100.0``; null means absent; unknown fields are tolerated; wrong types and unpaired surrogates raise
``GatewayError`` (400) whose ``param`` is the dotted field path.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from smg.core.errors import GatewayError

T = TypeVar("T")

# Python, and msgspec with it, reads no int of more, because that takes long.
_MOST_DIGITS = 4300
_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unknown(msgspec.Struct, frozen=True):
    """A union member whose tag this version does not know; ``raw`` is the decoded object as the client sent it."""

    type: str
    raw: dict[str, Any]


def decode(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body into ``kind`` (a msgspec Struct).

    Raises:
        GatewayError: ``json_parse_error`` (not JSON) or ``invalid_value`` with ``param`` (JSON, but wrong).
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # Rare path: be lenient about 100.0, or find out exactly what is wrong.
        pass
    value = loads(body)
    return convert(value, kind)


def loads(body: bytes) -> Any:
    """Parse any JSON text into plain objects, refusing what has no UTF-8 form.

    Raises:
        GatewayError: as ``decode``.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        _explain(body)
    except RecursionError:
        raise GatewayError("json_parse_error", "the JSON body is nested too deeply") from None
    return value


def convert(value: Any, kind: type[T], path: str = "") -> T:
    """Convert plain objects into ``kind``; ``path`` is the dotted path of ``value`` in the body.

    Raises:
        GatewayError: ``invalid_value``, with ``param`` set to ``path`` plus the place inside ``value``.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        # Rare path, as in ``decode``.
        pass
    try:
        return msgspec.convert(_integral_floats(value), kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        inner = found["path"].removeprefix("$").removeprefix(".") if found else ""
        message = text[: found.start()] if found else text
        if missing := _MISSING.fullmatch(message):
            inner = join(inner, missing["name"])
        raise GatewayError("invalid_value", message.replace("`", "'"), param=join(path, inner) or None) from None


def join(path: str, inner: str) -> str:
    """Join two dotted paths: ``messages[0]`` and ``content[1].text``."""
    if not path or not inner:
        return path or inner
    return f"{path}{inner}" if inner.startswith("[") else f"{path}.{inner}"


class Union(Generic[T]):
    """A tagged union of Structs: ``Union({"text": TextPart, "image_url": ImagePart}, default="text")``.

    ``tag`` names the field (``type``, or ``role`` for messages). ``default`` is the tag of an object that has none;
    without a default such an object is refused.
    """

    def __init__(self, variants: Mapping[str, type[T]], default: str | None = None, tag: str = "type") -> None:
        self._variants = dict(variants)
        self._default = default
        self._tag = tag

    def one(self, value: Any, path: str) -> T | Unknown:
        """Convert one object. Raises ``GatewayError`` with the field path when it is not one."""
        if not isinstance(value, dict):
            raise GatewayError("invalid_value", f"Expected 'object', got '{kind_of(value)}'", param=path or None)
        name = value.get(self._tag)
        if name is None:
            name = self._default
            if name is None:
                raise GatewayError("invalid_value", f"missing required field '{self._tag}'", param=path or None)
        if not isinstance(name, str):
            raise GatewayError("invalid_value", f"Expected 'str', got '{kind_of(name)}'", param=join(path, self._tag))
        variant = self._variants.get(name)
        if variant is None:
            return Unknown(name, value)
        return convert(value, variant, path)

    def many(self, values: Any, path: str) -> list[T | Unknown]:
        """Convert a list of objects."""
        if not isinstance(values, list):
            raise GatewayError("invalid_value", f"Expected 'array', got '{kind_of(values)}'", param=path or None)
        return [self._known(value) or self.one(value, f"{path}[{index}]") for index, value in enumerate(values)]

    def _known(self, value: Any) -> T | None:
        """``value`` converted, if there is nothing to say about it."""
        if not isinstance(value, dict):
            return None
        name = value.get(self._tag)
        variant = self._variants.get(name) if isinstance(name, str) else None
        if variant is None:
            return None
        try:
            return msgspec.convert(value, variant)
        except msgspec.ValidationError:
            return None


def kind_of(value: Any) -> str:
    """Name of a JSON value's type in error messages, as msgspec spells it."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "str"
        case list():
            return "array"
        case _:
            return "object"


def _integral_floats(value: Any) -> Any:
    """Copy ``value`` with every integral float as an int: 100.0 is a valid integer, and an int is a valid float."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**63:
            return int(value)
        case list():
            return [_integral_floats(item) for item in value]
        case dict():
            return {key: _integral_floats(item) for key, item in value.items()}
        case _:
            return value


def _explain(body: bytes) -> NoReturn:
    """Raise the error that tells a client what is wrong with a body that msgspec refused."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GatewayError("json_parse_error", f"the body is not valid UTF-8 (byte {error.start})") from None
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_in_range, parse_int=_few_digits)
    except json.JSONDecodeError as error:
        message = f"the body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise GatewayError("json_parse_error", message) from None
    except RecursionError:
        raise GatewayError("json_parse_error", "the JSON body is nested too deeply") from None
    except ValueError as error:
        raise GatewayError("json_parse_error", f"the body is not valid JSON: {error}") from None
    for path, where in _strings(value, ""):
        if isinstance(where, _Huge):
            raise GatewayError("invalid_value", "the number is out of range", param=path or None)
        if _SURROGATE.search(where):
            raise GatewayError("invalid_value", "unpaired UTF-16 surrogate in a string", param=path or None)
    raise GatewayError("json_parse_error", "the body is not valid JSON")


class _Huge(str):
    """A number that is JSON, but that no float or int of ours can be."""


def _in_range(digits: str) -> float | _Huge:
    return _Huge(digits) if math.isinf(number := float(digits)) else number


def _few_digits(digits: str) -> int | _Huge:
    return _Huge(digits) if len(digits) > _MOST_DIGITS else int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case list():
            for index, item in enumerate(value):
                yield from _strings(item, f"{path}[{index}]")
        case dict():
            for key, item in value.items():
                yield path, key
                yield from _strings(item, join(path, key))
