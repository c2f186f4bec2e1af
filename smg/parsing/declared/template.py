"""What a response template says, checked once when a model is loaded.

The form is that of Hugging Face's documentation, "Response Parsing": fields with a literal or a regular expression at
both ends, a kind of content, and a shape for the result; and an anchor that tells where a message begins in a prompt.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from smg.parsing.engine.grammar import tokens_in

REASONING = ("thinking", "reasoning_content", "reasoning")
CALLS = "tool_calls"
CONTENTS = frozenset({"text", "int", "float", "bool", "json", "xml-inline", "kv-lines", "python-call-list"})

_KEYS = frozenset({"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"})
_PLACEHOLDER = re.compile(r"\{\w+(?:\.\w+)*\}")
_ESCAPED = re.compile(r"\\(\W)")


class TemplateError(ValueError):
    """The template has not the documented form, or needs what is not installed."""


class Edge(msgspec.Struct, frozen=True):
    """Where a field begins or ends: one of ``literals``, or what ``pattern`` matches."""

    literals: tuple[str, ...] = ()
    pattern: str = ""


class Field(msgspec.Struct, frozen=True):
    """A field of the message. ``open`` None: it is whatever no other field has. ``close`` None: it runs to the end.

    ``content`` is how its text is read, with ``args``; ``transform`` is the shape of the result, for each of several
    when ``each``. ``join`` stands between its texts when it comes again.
    """

    name: str
    open: Edge | None
    close: Edge | None
    content: str = "text"
    args: Mapping[str, Any] = {}
    join: str = ""
    transform: Any = None
    each: bool = False

    @property
    def strip(self) -> bool:
        """Whether white space around its text is not part of it."""
        return self.args.get("strip", True) is not False


class Template(msgspec.Struct, frozen=True):
    """A response template; ``anchor`` is what an assistant's message begins with."""

    fields: tuple[Field, ...]
    anchor: Edge

    @property
    def implicit(self) -> Field | None:
        """The field of all text that is no other's."""
        return next((field for field in self.fields if field.open is None), None)

    @property
    def edges(self) -> Iterator[Edge]:
        for field in self.fields:
            yield from (edge for edge in (field.open, field.close) if edge is not None)

    @property
    def has_patterns(self) -> bool:
        return any(edge.pattern for edge in self.edges) or any(field.content == "xml-inline" for field in self.fields)

    @property
    def markers(self) -> tuple[str, ...]:
        """Every text that a vocabulary may have as a token and that has to reach the parser."""
        texts = {text for edge in self.edges for text in edge.literals}
        for edge in self.edges:
            texts |= tokens_in(_ESCAPED.sub(r"\1", edge.pattern))
        for field in self.fields:
            texts |= {text for pair in field.args.get("string_delims") or () for text in pair}
            texts |= tokens_in(_ESCAPED.sub(r"\1", str(field.args.get("tag_pattern", ""))))
        return tuple(sorted(texts | {token for text in texts for token in tokens_in(text)}))


def load(given: Any) -> Template:
    """Read what a tokenizer's configuration has as ``response_template``.

    Raises:
        TemplateError: it has another form.
    """
    if not isinstance(given, Mapping) or given.get("version", 1) != 1:
        raise TemplateError("no response template of version 1")
    _known("response_template", given, _KEYS)
    fields = given.get("fields")
    if not isinstance(fields, Mapping) or not fields:
        raise TemplateError("response_template.fields is no object with fields")
    anchor = _edge("response_template", given, "start_anchor")
    if anchor is None:
        raise TemplateError("response_template has neither start_anchor nor start_anchor_pattern")
    read = tuple(_field(str(name), field) for name, field in fields.items())
    if sum(field.open is None for field in read) > 1:
        raise TemplateError("more than one field has no beginning of its own")
    return Template(read, anchor)


_FIELD_KEYS = frozenset(
    {
        *("open", "open_pattern", "close", "close_pattern", "content", "content_args"),
        *("repeats", "join", "optional", "transform", "transform_each"),
    }
)


def _field(name: str, given: Any) -> Field:
    where = f"response_template.fields.{name}"
    if not isinstance(given, Mapping):
        raise TemplateError(f"{where} is no object")
    _known(where, given, _FIELD_KEYS)
    content, args, join = given.get("content", "text"), given.get("content_args") or {}, given.get("join") or ""
    if content not in CONTENTS:
        raise TemplateError(f"{where}.content: {content!r} is none of {', '.join(sorted(CONTENTS))}")
    if not isinstance(args, Mapping) or not isinstance(join, str):
        raise TemplateError(f"{where}: content_args is no object, or join no text")
    if content == "xml-inline" and not isinstance(args.get("tag_pattern"), str):
        raise TemplateError(f"{where}.content_args.tag_pattern is missing")
    _placeholders(where, given.get("transform"))
    return Field(
        name,
        _edge(where, given, "open"),
        _edge(where, given, "close"),
        content,
        dict(args),
        join,
        given.get("transform"),
        given.get("transform_each") is True,
    )


def _known(where: str, given: Mapping[str, Any], keys: frozenset[str]) -> None:
    if unknown := sorted(set(given) - keys):
        raise TemplateError(f"{where} has keys of a form that is not known: {', '.join(unknown)}")


def _edge(where: str, given: Mapping[str, Any], key: str) -> Edge | None:
    literal, pattern = given.get(key), given.get(f"{key}_pattern")
    if literal is not None and pattern is not None:
        raise TemplateError(f"{where} has both {key} and {key}_pattern")
    if pattern is not None:
        if not isinstance(pattern, str) or not pattern:
            raise TemplateError(f"{where}.{key}_pattern is no text")
        return Edge(pattern=pattern)
    if literal is None:
        return None
    texts = [literal] if isinstance(literal, str) else literal
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise TemplateError(f"{where}.{key} is neither a text nor a list of texts")
    return Edge(tuple(dict.fromkeys(texts)))


def _placeholders(where: str, transform: Any) -> None:
    """A placeholder is a whole string."""
    if isinstance(transform, Mapping):
        transform = list(transform.values())
    if isinstance(transform, list):
        for part in transform:
            _placeholders(where, part)
    elif isinstance(transform, str) and _PLACEHOLDER.search(transform) and not _PLACEHOLDER.fullmatch(transform):
        raise TemplateError(f"{where}.transform: {transform!r} is a placeholder only in part")
