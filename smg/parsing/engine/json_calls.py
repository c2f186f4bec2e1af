"""Calls whose name and arguments are members of a JSON object, or of several in an array (spec parsers 3, 6.1)."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from smg.parsing.engine import json_text
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait
from smg.parsing.engine.grammar import Context

NAMES = ("name", "function", "tool_name")
ARGUMENTS = ("arguments", "parameters", "args", "input")
IDS = ("id", "tool_call_id")
_MEMBERS = frozenset(("type", *IDS, *NAMES, *ARGUMENTS))

# Called once arguments have begun; gives where their text goes.
Begin: TypeAlias = Callable[[], Sink]


class JsonCalls(msgspec.Struct, frozen=True):
    """``{"name": …, "arguments": …}`` or an array of such objects.

    ``separators``: characters that may stand between objects outside an array. ``single_key``: the objects have the
    name as their only key. ``marked`` False: there is no marker, so only an object that has nothing but the members of
    a call is one, and everything else is text; ``ids`` are keys whose value becomes the call's id.
    """

    separators: str = ""
    single_key: bool = False
    marked: bool = True
    ids: tuple[str, ...] = ()

    def read(self, context: Context) -> Wait[None]:
        try:
            yield from self._calls(context)
        except Malformed:
            if self.marked or context.started:
                raise
            # An answer in JSON: all of it is text, also what looks like a call inside.
            context.cursor.rewind()
            yield from _as_text(context, json_text.value(context.cursor, json_text.ignore))

    def _calls(self, context: Context) -> Wait[None]:
        cursor = context.cursor
        char = yield from cursor.visible()
        if char == "[":
            yield from self._array(context)
            return
        yield from self.one(context)
        while self.separators:
            cursor.mark()
            if not (yield from self._another(cursor)):
                cursor.rewind()
                return
            yield from self.one(context)

    def _another(self, cursor: Cursor) -> Wait[bool]:
        """Whether one more object follows; the cursor then stands before it."""
        while char := (yield from cursor.visible()):
            if char == "{":
                return True
            if char not in self.separators:
                return False
            cursor.at += 1
        return False

    def _array(self, context: Context) -> Wait[None]:
        cursor = context.cursor
        cursor.at += 1
        while True:
            char = yield from cursor.visible()
            if char == "{":
                yield from self.one(context)
                cursor.mark()
            elif char == "," and context.started:
                cursor.at += 1
            elif char in ("]", "") and context.started:
                cursor.at += len(char)
                return
            else:
                raise Malformed

    def one(self, context: Context) -> Wait[None]:
        """Read one object, which must be a call."""
        if self.single_key:
            yield from self._named_by_key(context)
            return
        yield from _Members(self, context).read()

    def _named_by_key(self, context: Context) -> Wait[None]:
        cursor = context.cursor
        yield from _open(cursor)
        name = yield from json_text.word(cursor)
        yield from _expect(cursor, ":")
        yield from arguments(cursor, lambda: _begin(context, name))
        if not context.calls.open:
            context.start(name)
        yield from _expect(cursor, "}")
        context.calls.end()


class _Members:
    """The members of one call as they come: arguments that come before the name wait for it."""

    def __init__(self, form: JsonCalls, context: Context) -> None:
        self._form = form
        self._context = context
        self._name = ""
        self._id: str | None = None
        self._held: list[str] | None = None

    def read(self) -> Wait[None]:
        yield from self._object()
        if self._context.calls.open:
            self._context.calls.end()
            return
        if not self._form.marked and self._context.calls.tool(self._name) is None and self._held is None:
            raise Malformed
        self._start()
        self._context.calls.arguments("".join(self._held or ()))
        self._context.calls.end()

    def _object(self) -> Wait[None]:
        cursor = self._context.cursor
        yield from _open(cursor)
        due = False  # a comma, before another member
        while True:
            char = yield from cursor.visible()
            if char == "}":
                cursor.at += 1
                return
            if char == "," and due:
                cursor.at += 1
                due = False
                continue
            if due:
                raise Malformed
            due = True
            key = yield from json_text.word(cursor)
            yield from _expect(cursor, ":")
            if not self._form.marked and key not in _MEMBERS:
                raise Malformed
            yield from self._member(key, (yield from cursor.visible()))

    def _member(self, key: str, char: str) -> Wait[None]:
        cursor, form = self._context.cursor, self._form
        if key == "function" and char == "{":
            yield from self._object()
        elif key in NAMES and not self._name:
            # Not a string: no call.
            self._name = yield from json_text.word(cursor)
        elif key in ARGUMENTS and not self._context.calls.open and self._held is None:
            yield from arguments(cursor, self._begin)
        elif key in form.ids and char == '"':
            self._id = yield from json_text.word(cursor)
        else:
            yield from json_text.value(cursor, json_text.ignore)

    def _begin(self) -> Sink:
        if self._name:
            self._start()
            return self._context.calls.arguments
        self._held = []
        return self._held.append

    def _start(self) -> None:
        self._context.start(self._name, self._id, marked=self._form.marked)


def arguments(cursor: Cursor, begin: Begin) -> Wait[None]:
    """Read the value of the arguments: an object, a string that holds one, or null for none. ``begin`` gives the sink
    and is called once it is clear that they begin like arguments.

    Raises:
        Malformed: they are something else.
    """
    char = yield from cursor.visible()
    if char == "{":
        yield from json_text.object_head(cursor)
        yield from json_text.value(cursor, begin())
    elif char == '"':
        yield from _quoted(cursor, begin)
    elif (yield from json_text.scalar(cursor)) != "null":
        raise Malformed


def _quoted(cursor: Cursor, begin: Begin) -> Wait[None]:
    """Arguments that were printed as JSON twice: what the string holds is read as it arrives.

    Raises:
        Malformed: it is something else. What could not be read is given back as the string spells it.
    """
    inner = Cursor()
    reader: Wait[None] | None = _inner(inner, begin)
    unread: list[str] = []  # how the string spells each character that ``inner`` has not consumed

    def go_on() -> None:
        nonlocal reader
        try:
            reader = _resume(reader)
        except Malformed as error:
            raise Malformed(json_text.escape(error.text)) from None
        finally:
            del unread[: len(unread) - len(inner.text) + inner.at]

    def take(fragment: str) -> None:
        spelled = json_text.characters(fragment)
        unread.extend(spelled)
        inner.feed(json_text.unescape(fragment))
        try:
            go_on()
        except Malformed:
            # The outer cursor still stands before the fragment, and keeps what of it has not been read.
            read = max(len(spelled) - len(unread), 0)
            cursor.at += sum(map(len, spelled[:read]))
            del unread[len(unread) - len(spelled) + read :]
            raise

    go_on()
    end = ""
    try:
        yield from json_text.string(cursor, take)
        end = '"'
        inner.final = True
        go_on()
    except Malformed as error:
        raise Malformed(error.text + "".join(unread) + end) from None


def _inner(inner: Cursor, begin: Begin) -> Wait[None]:
    if (yield from inner.visible()):
        yield from arguments(inner, begin)
    if (yield from inner.visible()):
        raise Malformed


def _resume(reader: Wait[None] | None) -> Wait[None] | None:
    """Let ``reader`` go on; None when it is done."""
    if reader is not None:
        try:
            next(reader)
        except StopIteration:
            return None
    return reader


def _begin(context: Context, name: str) -> Sink:
    context.start(name)
    return context.calls.arguments


def _open(cursor: Cursor) -> Wait[None]:
    yield from json_text.object_head(cursor)
    cursor.at += 1


def _expect(cursor: Cursor, char: str) -> Wait[None]:
    if (yield from cursor.visible()) != char:
        raise Malformed
    cursor.at += 1


def _as_text(context: Context, reader: Wait[None]) -> Wait[None]:
    """Give back as content, as it arrives, all that ``reader`` consumes."""
    cursor = context.cursor
    over = False
    while not over:
        start = cursor.at
        try:
            next(reader)
        except (StopIteration, Malformed):
            over = True
        context.calls.content(cursor.text[start : cursor.at])
        if not over:
            yield
