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


class Nested(msgspec.Struct, frozen=True):
    """Elements up to one of ``end``, the closers of the call, which are not consumed. ``prefix`` is in front of every
    tag."""

    prefix: str
    end: tuple[str, ...]

    def read(self, context: Context, name: str, begin: Begin) -> Wait[None]:
        tool = context.calls.tool(name)
        writer = _Writer(tool.schema if tool is not None else {})
        sink: Sink | None = None
        while (yield from self._next(context)):
            element = _Element((yield from self._name(context.cursor)))
            sink = sink or begin()
            sink(writer.before(element))
            try:
                yield from self._content(context.cursor, element, 1)
            except Malformed:
                if not element.children:
                    sink(f'{writer.separator}{values.quote(element.name)}: "{json_text.escape(element.text)}')
                raise
            writer.hold(element)
        if sink is None:
            begin()
        else:
            sink(writer.last())

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
            raise Malformed
        return name

    def _content(self, cursor: Cursor, element: _Element, depth: int) -> Wait[None]:
        """Read up to and including the closer of ``element``."""
        if depth > json_text.MAX_DEPTH:
            raise Malformed
        closer = f"{self.prefix}</{element.name}>"
        legal = cursor.markers(f"{self.prefix}<", closer, *self.end)
        size = 0

        def take(text: str) -> None:
            nonlocal size
            size += len(text)
            if size > MAX_ARGUMENTS:
                raise Malformed
            element.texts.append(text)

        while (hit := (yield from cursor.until(legal, take, held=True))).marker != closer:
            if hit.marker in self.end:
                cursor.unread(hit)
                raise Malformed
            child = _Element((yield from self._name(cursor)))
            element.children.append(child)
            yield from self._content(cursor, child, depth + 1)


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
    listed = "array" in kinds.names or (not kinds.names and all(child.name == ITEM for child in element.children))
    if listed:
        items = values.items(schema, root)
        return f"[{', '.join(_value(child, items, root) for child in element.children)}]"
    members = [_member(group, schema, root) for group in _groups(element.children)]
    if element.text.strip():
        key = MIXED
        while any(child.name == key for child in element.children):
            key = "$" + key
        members.append(f"{values.quote(key)}: {values.quote(element.text)}")
    return f"{{{', '.join(members)}}}"


def _groups(elements: Sequence[_Element]) -> Iterator[list[_Element]]:
    """The elements by their names, in the order in which these come first."""
    found: dict[str, list[_Element]] = {}
    for element in elements:
        found.setdefault(element.name, []).append(element)
    yield from found.values()
