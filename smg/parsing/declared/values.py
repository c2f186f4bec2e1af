"""From the text of a declared field of calls to names and arguments (Hugging Face's "Response Parsing": content types
and transforms)."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from smg.core.request import Tool
from smg.parsing.declared.edges import MAX_SECS, compiled
from smg.parsing.declared.template import Field
from smg.parsing.engine import values
from smg.parsing.engine.cursor import Malformed

_STRING = r'"(?:\\.|[^"\\])*"'
_KEY = r"(?<=[{,])(\s*)([\w.-]+)(\s*):"


class Called(NamedTuple):
    """One call. ``arguments`` is its JSON text."""

    name: str
    native_id: str | None
    arguments: str


class Written(msgspec.Struct, frozen=True):
    """A value that was written without quotes: its ``text``, and what the template takes it for."""

    text: str
    value: Any


def calls_of(field: Field, text: str, groups: Mapping[str, str], tools: Mapping[str, Tool]) -> list[Called]:
    """The calls in ``text``, the inside of ``field``, whose edges have named ``groups``.

    Raises:
        Malformed: it has not the declared form, or is no call.
        TimeoutError: a regular expression takes too long.
    """
    try:
        content = _read(text, field.content, field.args)
        if field.each:
            found = [_filled(field.transform, {**groups, **item}) for item in content]
        elif field.transform is not None:
            found = _filled(field.transform, {**groups, "content": content})
        else:
            found = content
        return [_called(one, tools) for one in (found if isinstance(found, list) else [found])]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise Malformed from error


def _called(value: Any, tools: Mapping[str, Tool]) -> Called:
    function = value.get("function", value)
    name, given, native_id = function["name"], function.get("arguments"), value.get("id")
    if not isinstance(name, str):
        raise ValueError("a name that is no text")
    if isinstance(given, str):
        given = json.loads(given)
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise ValueError("arguments that are no object")
    tool = tools.get(name)
    members = ", ".join(f"{values.quote(str(key))}: {_json(value, tool, str(key))}" for key, value in given.items())
    return Called(name, native_id if isinstance(native_id, str) else None, f"{{{members}}}")


def _json(value: Any, tool: Tool | None, key: str) -> str:
    """An argument in JSON; where the tool's schema has types, it tells that of a text."""
    text = value.text if isinstance(value, Written) else value
    if isinstance(text, str):
        kinds = values.kinds_of(tool, key)
        if kinds.names:
            return values.coerce(text, kinds)
    return json.dumps(value, ensure_ascii=False, default=_value)


def _value(value: Any) -> Any:
    if isinstance(value, Written):
        return value.value
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def _read(text: str, content: str, args: Mapping[str, Any]) -> Any:
    bare = text.strip() if args.get("strip", True) else text
    match content:
        case "json":
            return _json_of(text, args)
        case "xml-inline":
            return _members(_tags(text, args), args)
        case "kv-lines":
            return _members(_lines(text, args), args)
        case "int":
            return int(bare)
        case "float":
            return float(bare)
        case "bool":
            return bare.lower() in ("true", "1")
    return bare


def _json_of(text: str, args: Mapping[str, Any]) -> Any:
    pairs = [(str(open_), str(close)) for open_, close in args.get("string_delims") or ()]
    plain = text
    if pairs or args.get("unquoted_keys"):
        quoted = [f"{re.escape(open_)}(.*?){re.escape(close)}" for open_, close in pairs]
        keys = [_KEY] if args.get("unquoted_keys") else []
        plain = re.sub(
            "|".join([*quoted, _STRING, *keys]), lambda match: _requoted(match, len(pairs)), text, flags=re.DOTALL
        )
    try:
        return json.loads(plain)
    except ValueError:
        if args.get("allow_non_json"):
            return text.strip()
        raise


def _requoted(match: re.Match[str], pairs: int) -> str:
    """What matched, as JSON has it: a string in quotes of its own, one of JSON, or a bare key."""
    index = match.lastindex
    if index is None:
        return match[0]
    if index <= pairs:
        return values.quote(match[index])
    return f"{match[pairs + 1]}{values.quote(match[pairs + 2])}{match[pairs + 3]}:"


def _tags(text: str, args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for match in compiled(args["tag_pattern"]).finditer(text, timeout=MAX_SECS):
        yield match["key"], match["value"] or ""


def _lines(text: str, args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    strip = args.get("strip", True)
    for line in text.split(args.get("line_sep", "\n")):
        key, separator, value = (line.strip() if strip else line).partition(args.get("kv_sep", ":"))
        if separator:
            yield (key.strip(), value.strip()) if strip else (key, value)


def _members(pairs: Iterator[tuple[str, str]], args: Mapping[str, Any]) -> dict[str, Any]:
    """An object of texts; the same key again makes a list of its values where the template says so."""
    parser = args.get("value_parser")
    out: dict[str, Any] = {}
    several: set[str] = set()
    for key, text in pairs:
        value = Written(text, _read(text, parser.get("name", "text"), parser.get("args") or {}) if parser else text)
        if key not in out or not args.get("merge_duplicates"):
            out[key] = value
        elif key in several:
            out[key].append(value)
        else:
            several.add(key)
            out[key] = [out[key], value]
    return out


def _filled(transform: Any, scope: Mapping[str, Any]) -> Any:
    """``transform`` with the values of its placeholders, which are whole strings: ``{content}``, ``{content.args}``."""
    if isinstance(transform, Mapping):
        return {key: _filled(value, scope) for key, value in transform.items()}
    if isinstance(transform, list):
        return [_filled(value, scope) for value in transform]
    if not isinstance(transform, str) or not (transform.startswith("{") and transform.endswith("}")):
        return transform
    value: Any = scope
    for key in transform[1:-1].split("."):
        value = value[key]
    return value
