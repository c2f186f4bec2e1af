"""Arguments that are written one by one, each with its key: XML elements, or pairs of key and value (spec parsers 3,
6.4, 6.9 to 6.11, 6.16).

Values that are strings by the caller's schema are passed on while they arrive; others wait for their end and get their
type then.
"""

import html
import re
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from smg.parsing.engine import json_calls, json_text, values
from smg.parsing.engine.calls import MAX_ARGUMENTS
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait
from smg.parsing.engine.grammar import Context
from smg.parsing.engine.named import MAX_HEADER, Begin, attributes
from smg.parsing.engine.values import Kinds

LINE_ENDS = ("\n", "\r\n")
CDATA = "<![CDATA["
CDATA_END = "]]>"

_ENTITY = re.compile(r"&#?\w{0,10}\Z")

# What the model says itself about a value: text, JSON, or nothing.
Said: TypeAlias = bool | None
Unescape: TypeAlias = Callable[[str], str]


class Key(Protocol):
    """How the key of an argument is written. ``open`` are the spellings of what begins one."""

    @property
    def open(self) -> tuple[str, ...]: ...

    def read(self, cursor: Cursor) -> Wait[tuple[str, Said]]:
        """Read the key behind the opener, up to where the value begins."""
        ...


class KeyInTag(msgspec.Struct, frozen=True):
    """``<parameter=KEY>``."""

    open: tuple[str, ...]
    end: str = ">"

    def read(self, cursor: Cursor) -> Wait[tuple[str, Said]]:
        key, _ = yield from cursor.word(cursor.markers(self.end), MAX_HEADER)
        return key.strip(), None


class KeyAttribute(msgspec.Struct, frozen=True):
    """``<parameter name="KEY">``. ``text`` is the attribute that tells text from JSON, and its value for text."""

    open: tuple[str, ...]
    name: str = "name"
    end: str = ">"
    text: tuple[str, str] | None = None
    unescape: Unescape | None = None

    def read(self, cursor: Cursor) -> Wait[tuple[str, Said]]:
        found = yield from attributes(cursor, self.end)
        key = found.get(self.name, "")
        said = None if self.text is None or self.text[0] not in found else found[self.text[0]] == self.text[1]
        return (self.unescape(key) if self.unescape else key), said


class KeyElement(msgspec.Struct, frozen=True):
    """``<arg_key>KEY</arg_key><arg_value>``: the key has an element of its own, ``value`` opens the value's. Between
    them may stand white space, and an element that ``kind`` opens and closes with the value's type."""

    open: tuple[str, ...]
    close: tuple[str, ...]
    value: tuple[str, ...]
    kind: tuple[str, ...] = ()

    def read(self, cursor: Cursor) -> Wait[tuple[str, Said]]:
        key, _ = yield from cursor.word(cursor.markers(*self.close), MAX_HEADER)
        said: Said = None
        while True:
            yield from skip_blank(cursor)
            hit = yield from cursor.match(cursor.markers(*self.value, *self.kind[:1]))
            if hit is None:
                raise Malformed
            if hit.marker in self.value:
                return key.strip(), said
            kind, _ = yield from cursor.word(cursor.markers(*self.kind[1:]), MAX_HEADER)
            said = kind.strip() == "string"


class Params(msgspec.Struct, frozen=True):
    """Arguments one by one up to one of ``end``, the closers of the call, which are not consumed.

    ``close`` are the closers of a value; a value without one ends at the next key or the end of the call. ``trim``: one
    line end on each side of a value belongs to the format, and a value of white space is empty. ``entities``: values
    are escaped as in XML. ``json``: the arguments may also be one JSON object. ``verbatim``: values that nobody
    declared are strings. ``separators`` may stand between arguments. ``drop`` are control texts that are no part of a
    value.
    """

    key: Key
    close: tuple[str, ...]
    end: tuple[str, ...]
    trim: bool = False
    entities: bool = False
    cdata: bool = False
    json: bool = False
    verbatim: bool = False
    separators: str = ""
    drop: tuple[str, ...] = ()

    def read(self, context: Context, name: str, begin: Begin) -> Wait[None]:
        cursor = context.cursor
        if self.json and (yield from cursor.visible()) == "{":
            yield from json_calls.arguments(cursor, begin)
            return
        sink: Sink | None = None
        opened = False
        while (found := (yield from self._begun(context))) is not None:
            key, said = found
            sink = sink or begin()
            sink(f"{', ' if opened else '{'}{values.quote(key)}: ")
            opened = True
            kinds = values.kinds_of(context.calls.tool(name), key)
            yield from self._value(cursor, sink, kinds, said)
        if sink is None:
            begin()
        elif opened:
            sink("}")

    def _begun(self, context: Context) -> Wait[tuple[str, Said] | None]:
        """Read the key of the next argument; None when the call ends here.

        Raises:
            Malformed: here is neither. In a call that has started, what looked like a key has not been consumed.
        """
        cursor, started = context.cursor, context.calls.open
        if started:
            cursor.mark()
        try:
            if not (yield from self._next(context)):
                return None
            key, said = yield from self.key.read(cursor)
            if not key:
                raise Malformed
        except Malformed:
            if started:
                cursor.rewind()
            raise
        finally:
            if started:
                cursor.commit()
        return key, said

    def _next(self, context: Context) -> Wait[bool]:
        """Consume the opener of the next argument; False when the call ends here, whose closer is left alone.

        Raises:
            Malformed: here is neither.
        """
        cursor = context.cursor
        while True:
            char = yield from skip_blank(cursor)
            if not char and context.calls.open and not cursor.cut:
                return False
            if char and char in self.separators:
                cursor.at += 1
                continue
            hit = yield from cursor.match(cursor.markers(*self.key.open, *self.end, *self.drop))
            if hit is None:
                raise Malformed
            if hit.marker in self.key.open:
                return True
            if hit.marker in self.end:
                cursor.unread(hit)
                return False

    def _value(self, cursor: Cursor, sink: Sink, kinds: Kinds, said: Said) -> Wait[None]:
        """Read one value and its closer, and pass on its JSON."""
        if self.cdata and (yield from cursor.match(cursor.markers(CDATA))) is not None:
            yield from self._cdata(cursor, sink)
            return
        if self.trim:
            yield from cursor.match(cursor.markers(*LINE_ENDS))
        if said if said is not None else kinds.plain_string or (self.verbatim and not kinds.names):
            sink('"')
            yield from self._text(cursor, lambda text: sink(json_text.escape(text)), quoted=True)
            sink('"')
            return
        held = _Held()
        try:
            yield from self._text(cursor, held)
        except Malformed:
            held.give_to(sink)
            raise
        text = held.text()
        sink(values.json_or_text(text) if said is False else values.coerce(text, kinds))

    def _text(self, cursor: Cursor, sink: Sink, quoted: bool = False) -> Wait[None]:
        """Pass on a value's text, as this format means it, and consume its closer. ``quoted``: into a string."""
        out = _Unescaped(sink) if self.entities else None
        blank = _Blank(out or sink) if self.trim else None
        into = blank or out or sink
        ends = (*self.close, *self.key.open, *self.end)
        if self.trim:
            ends = (*ends, *(line + end for line in LINE_ENDS for end in ends))
        legal = cursor.markers(*ends, *self.drop)

        def passes() -> tuple[str, ...] | None:
            if (blank is not None and blank.holds) or (out is not None and out.holds):
                return None
            return () if out is None else ("&",)

        try:
            while (hit := (yield from cursor.until(legal, into, passes, held=not quoted))).marker in self.drop:
                pass
        finally:
            if out is not None:
                out.finish()
        # What ends a value that has no closer is not part of it.
        if hit.marker is not None and hit.marker.lstrip("\r\n") not in self.close:
            cursor.unread(hit)

    def _cdata(self, cursor: Cursor, sink: Sink) -> Wait[None]:
        sink('"')
        yield from cursor.until(cursor.markers(CDATA_END), lambda text: sink(json_text.escape(text)), tuple)
        sink('"')
        yield from cursor.visible()
        yield from cursor.match(cursor.markers(*self.close))


class _Held:
    """A sink for a value that waits for its end."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def __call__(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)
        if self._size > MAX_ARGUMENTS:
            raise Malformed

    def text(self) -> str:
        return "".join(self._parts)

    def give_to(self, sink: Sink) -> None:
        """The output ended: what came so far goes on as it is.

        Raises:
            Malformed: it is too long for that, and becomes text.
        """
        try:
            sink(self.text())
        except Malformed:
            raise Malformed(self.text()) from None


class _Blank:
    """A sink for values whose white space counts only beside something visible."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held: list[str] | None = []

    @property
    def holds(self) -> bool:
        """Whether nothing visible has come yet."""
        return self._held is not None

    def __call__(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            if text.isspace():
                return
            text, self._held = "".join(self._held), None
        self._sink(text)


class _Unescaped:
    """A sink for text with XML entities, decoded once; half an entity waits for its rest."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held = ""

    @property
    def holds(self) -> bool:
        """Whether the beginning of an entity waits."""
        return self._held != ""

    def __call__(self, text: str) -> None:
        text = self._held + text
        found = _ENTITY.search(text)
        at = len(text) if found is None else found.start()
        self._held = text[at:]
        self._sink(html.unescape(text[:at]))

    def finish(self) -> None:
        self._sink(html.unescape(self._held))


def skip_blank(cursor: Cursor) -> Wait[str]:
    r"""Skip white space, and line ends that the model spelled as ``\n``; returns the next character."""
    while True:
        char = yield from cursor.visible()
        if char != "\\" or (yield from cursor.match(cursor.markers("\\n"))) is None:
            return char
