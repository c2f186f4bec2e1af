"""Arguments that are elements within elements, named after keys (spec parsers 9, MiniMax M3).

An element is text, or other elements: an object, or an array where the caller's schema says so or its elements are all
called ``item``. One without a declared type gets it from its text, as in the other formats without types.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from smg.parsing.engine import json_text, values
from smg.parsing.engine.calls import MAX_ARGUMENTS
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait
from smg.parsing.engine.grammar import Context
from smg.parsing.engine.named import MAX_HEADER, Begin
from smg.parsing.engine.params import skip_blank
from smg.parsing.markers import markers

ITEM = "item"
MIXED = "$text"  # the key of text beside elements

_NAME_END = markers(">")


class _Element:
    """What stands between an element's tags."""

    __slots__ = ("children", "name", "texts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts: list[str] = []
        self.children: list[_Element] = []

    @property
    def text(self) -> str:
        return "".join(self.texts)


class _Room:
    """Counts the characters of one argument, whatever elements are in it."""

    def __init__(self) -> None:
        self._size = 0

    def take(self, text: str) -> None:
        """Raises Malformed when that is too much."""
        self._size += len(text)
        if self._size > MAX_ARGUMENTS:
            raise Malformed


class Nested(msgspec.Struct, frozen=True):
    """Elements up to one of ``end``, the closers of the call, which are not consumed. ``prefix`` is in front of every
    tag."""

    prefix: str
    end: tuple[str, ...]

    def read(self, context: Context, name: str, begin: Begin) -> Wait[None]:
        tool = context.calls.tool(name)
        writer = _Writer(tool.schema if tool is not None else {})
        sink: Sink | None = None
        while (element := (yield from self._begun(context, writer, sink))) is not None:
            sink = sink or begin()
            sink(writer.before(element))
            try:
                yield from self._content(context.cursor, element, _Room(), 1)
            except Malformed:
                sink(writer.rest() + writer.cut(element))
                raise
            writer.hold(element)
        if sink is None:
            begin()
        else:
            sink(writer.last())

    def _begun(self, context: Context, writer: "_Writer", sink: Sink | None) -> Wait[_Element | None]:
        """Read the beginning of the next element; None when the call ends here.

        Raises:
            Malformed: here is neither. In a call that has started, what looked like one has not been consumed, and
                nothing waits any more.
        """
        cursor = context.cursor
        if sink is not None:
            cursor.mark()
        try:
            return _Element((yield from self._name(cursor))) if (yield from self._next(context)) else None
        except Malformed:
            if sink is not None:
                cursor.rewind()
                sink(writer.rest())
            raise Malformed from None
        finally:
            if sink is not None:
                cursor.commit()

    def _next(self, context: Context) -> Wait[bool]:
        """Consume the beginning of the next element's tag; False when the call ends here.

        Raises:
            Malformed: here is neither.
        """
        cursor = context.cursor
        char = yield from skip_blank(cursor)
        if not char and context.calls.open and not cursor.cut:
            return False
        opener = f"{self.prefix}<"
        hit = yield from cursor.match(cursor.markers(opener, *self.end))
        if hit is None:
            raise Malformed
        if hit.marker == opener:
            return True
        cursor.unread(hit)
        return False

    def _name(self, cursor: Cursor) -> Wait[str]:
        name, _ = yield from cursor.word(_NAME_END, MAX_HEADER)
        if not name.strip() or name.startswith("/"):
            raise Malformed(f"{self.prefix}<{name}>")
        return name

    def _content(self, cursor: Cursor, element: _Element, room: _Room, depth: int) -> Wait[None]:
        """Read up to and including the closer of ``element``."""
        if depth > json_text.MAX_DEPTH:
            raise Malformed
        closer = f"{self.prefix}</{element.name}>"
        legal = cursor.markers(f"{self.prefix}<", closer, *self.end)

        def take(text: str) -> None:
            room.take(text)
            element.texts.append(text)

        while (hit := (yield from cursor.until(legal, take, held=True))).marker != closer:
            if hit.marker in self.end:
                cursor.unread(hit)
                raise Malformed
            child = _Element((yield from self._name(cursor)))
            room.take(child.name)
            element.children.append(child)
            yield from self._content(cursor, child, room, depth + 1)


class _Writer:
    """Arguments as JSON. An element waits for the next one: the same name again makes an array of both."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._held: list[_Element] = []
        self.separator = "{"

    def before(self, element: _Element) -> str:
        """What can be written now that ``element`` begins."""
        if not self._held or self._held[0].name == element.name:
            return ""
        return self._flush()

    def hold(self, element: _Element) -> None:
        self._held.append(element)

    def rest(self) -> str:
        return self._flush() if self._held else ""

    def cut(self, element: _Element) -> str:
        """The member that ``element`` would have become, as far as it has come."""
        schema = values.member(self._schema, self._schema, element.name)
        return f"{self.separator}{values.quote(element.name)}: {_cut(element, schema, self._schema)}"

    def last(self) -> str:
        return self._flush() + "}"

    def _flush(self) -> str:
        held, self._held = self._held, []
        text = self.separator + _member(held, self._schema, self._schema)
        self.separator = ", "
        return text


def _member(elements: Sequence[_Element], schema: Any, root: dict[str, Any]) -> str:
    """The member of an object with ``schema`` that ``elements``, all of one name, are."""
    name = elements[0].name
    own = values.member(schema, root, name)
    written = [_value(element, own, root) for element in elements]
    value = written[0] if len(written) == 1 else f"[{', '.join(written)}]"
    return f"{values.quote(name)}: {value}"


def _value(element: _Element, schema: Any, root: dict[str, Any]) -> str:
    kinds = values.kinds_in(schema, root)
    if not element.children:
        if not element.text.strip() and kinds.names and kinds.names <= {"array", "object", "null"}:
            return "[]" if "array" in kinds.names else "{}"
        return values.coerce(element.text, kinds)
    if _listed(element, kinds):
        items = values.items(schema, root)
        return f"[{', '.join(_value(child, items, root) for child in element.children)}]"
    members = [_member(group, schema, root) for group in _groups(element.children)]
    return f"{{{', '.join(members + _mixed(element))}}}"


def _listed(element: _Element, kinds: values.Kinds) -> bool:
    return "array" in kinds.names or (not kinds.names and all(child.name == ITEM for child in element.children))


def _mixed(element: _Element) -> list[str]:
    """The member that text beside elements is."""
    if not element.text.strip():
        return []
    key = MIXED
    while any(child.name == key for child in element.children):
        key = "$" + key
    return [f"{values.quote(key)}: {values.quote(element.text)}"]


def _cut(element: _Element, schema: Any, root: dict[str, Any]) -> str:
    """JSON of an element that broke off in its last child, or in its text: nothing is closed."""
    if not element.children:
        return f'"{json_text.escape(element.text)}'
    *whole, last = element.children
    if _listed(element, values.kinds_in(schema, root)):
        items = values.items(schema, root)
        return "[" + ", ".join([*(_value(child, items, root) for child in whole), _cut(last, items, root)])
    open_ = f"{values.quote(last.name)}: {_cut(last, values.member(schema, root, last.name), root)}"
    return "{" + ", ".join([*_mixed(element), *(_member(group, schema, root) for group in _groups(whole)), open_])


def _groups(elements: Sequence[_Element]) -> Iterator[list[_Element]]:
    """The elements by their names, in the order in which these come first."""
    found: dict[str, list[_Element]] = {}
    for element in elements:
        found.setdefault(element.name, []).append(element)
    yield from found.values()
