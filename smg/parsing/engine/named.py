"""Calls that write the name in a header and the arguments behind it."""

import re
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from smg.parsing.engine import json_calls
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait
from smg.parsing.engine.grammar import Context

MAX_HEADER = 512  # characters

# The tool's name and the call's id, from what the model wrote as one and the tools of the request.
Identify: TypeAlias = Callable[[str, tuple[str, ...]], tuple[str, str | None]]
# Starts the call, once it is clear that its arguments begin like arguments.
Begin: TypeAlias = Callable[[], Sink]

_ATTRIBUTE = re.compile(r"""([^\s=<>"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""")


class Header(Protocol):
    """Reads the name (and maybe the id) of a call."""

    def read(self, context: Context) -> Wait[tuple[str, str | None]]: ...


class Arguments(Protocol):
    """Reads the arguments of a call of the tool ``name``, after calling ``begin``."""

    def read(self, context: Context, name: str, begin: Begin) -> Wait[None]: ...


class Named(msgspec.Struct, frozen=True):
    """Body of a call: ``header``, then ``arguments``."""

    header: Header
    arguments: Arguments

    def read(self, context: Context) -> Wait[None]:
        name, native_id = yield from self.header.read(context)

        def begin() -> Sink:
            context.start(name, native_id)
            return context.calls.arguments

        if not name or not context.calls.known(name, marked=True):
            raise Malformed
        yield from self.arguments.read(context, name, begin)
        if not context.calls.open:
            begin()
        context.calls.end()


class Bare(msgspec.Struct, frozen=True):
    """The name is all text up to one of ``ends``. Those in ``kept`` are not consumed, as they belong to what follows.

    ``ids`` are the texts between the name and the call's id, ``names`` those between the id and the name. ``identify``
    takes a name apart that is not just the name.
    """

    ends: tuple[str, ...]
    kept: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    identify: Identify | None = None

    def read(self, context: Context) -> Wait[tuple[str, str | None]]:
        cursor = context.cursor
        yield from cursor.visible()
        ends = cursor.markers(*self.ends, *self.kept, *self.ids, *self.names)
        text, hit = yield from cursor.word(ends, MAX_HEADER)
        native_id: str | None = None
        if hit.marker in self.ids:
            native_id, hit = yield from cursor.word(ends, MAX_HEADER)
        elif hit.marker in self.names:
            native_id = text
            text, hit = yield from cursor.word(ends, MAX_HEADER)
        if hit.marker in self.kept:
            cursor.unread(hit)
        name = text.strip()
        if self.identify is not None:
            return self.identify(name, context.calls.names)
        if not name or any(char.isspace() or char in "<>{}\"'" for char in name):
            raise Malformed
        return name, native_id.strip() if native_id else None


class Attributes(msgspec.Struct, frozen=True):
    """The name is an attribute, as in ``name="f">`` behind the opener; ``end`` closes the tag."""

    name: str = "name"
    end: str = ">"
    unescape: Callable[[str], str] | None = None

    def read(self, context: Context) -> Wait[tuple[str, str | None]]:
        found = yield from attributes(context.cursor, self.end)
        name = found.get(self.name, "")
        return (self.unescape(name) if self.unescape else name), None


def attributes(cursor: Cursor, end: str) -> Wait[dict[str, str]]:
    """Read the attributes of a tag up to ``end``, which also closes it when it comes inside quotes only outside of
    them. Values have quotes of either kind, or none.

    Raises:
        Malformed: there is no end.
    """
    text = ""
    while True:
        part, hit = yield from cursor.word(cursor.markers(end), MAX_HEADER)
        text += part
        if text.count('"') % 2 == 0 or len(text) > MAX_HEADER:
            break
        text += cursor.text[hit.start : hit.end]
    if len(text) > MAX_HEADER:
        raise Malformed
    found = _ATTRIBUTE.findall(text.removesuffix("/"))
    return {key: double or single or bare for key, double, single, bare in found}


class Json(msgspec.Struct, frozen=True):
    """The arguments are one JSON object. ``before`` and ``after`` may stand around it, as a code fence does."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def read(self, context: Context, name: str, begin: Begin) -> Wait[None]:
        cursor = context.cursor
        if self.before:
            yield from cursor.visible()
            yield from cursor.match(cursor.markers(*self.before))
        yield from json_calls.arguments(cursor, begin)
        if self.after:
            yield from cursor.visible()
            yield from cursor.match(cursor.markers(*self.after))
