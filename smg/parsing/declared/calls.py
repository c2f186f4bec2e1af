"""The calls of an output, by a response template.

Calls in JSON are read as they arrive, as those of other formats are. Other kinds of content can only be read when their
field has ended.
"""

from collections.abc import Generator, Mapping
from typing import Any

from smg.core import stream
from smg.parsing.base import Piece, Start
from smg.parsing.declared.edges import Edges, Found
from smg.parsing.declared.template import CALLS, Field, Template
from smg.parsing.declared.text import until
from smg.parsing.declared.values import Called, calls_of
from smg.parsing.engine import json_calls
from smg.parsing.engine.calls import MAX_ARGUMENTS, Calls
from smg.parsing.engine.cursor import Cursor, Malformed, Sink
from smg.parsing.engine.grammar import Context
from smg.parsing.engine.json_calls import ARGUMENTS, NAMES, JsonCalls
from smg.parsing.engine.python_calls import PythonCalls
from smg.parsing.engine.values import quote

_OBJECTS = JsonCalls(separators=",\n", ids=("id", "tool_call_id"))
_CONTENT = "{content}"


class DeclaredCalls:
    """Content and calls."""

    def __init__(self, template: Template, start: Start) -> None:
        self.markers = template.markers
        self._seals = start.seals
        self._tools = {tool.name: tool for tool in start.tools}
        self._cursor = Cursor(start.seals)
        self._calls = Calls(start)
        self._field = next(field for field in template.fields if field.name == CALLS)
        opens, closes = self._field.open, self._field.close
        self._opens = Edges([] if opens is None else [opens], start.seals, lines=True)
        self._closes = Edges([] if closes is None else [closes], start.seals)
        self._objects, self._name = form_of(self._field)
        self._between = True
        self._run: Generator[None, None, None] | None = self._read()

    def feed(self, text: str) -> list[Piece]:
        self._cursor.feed(text)
        wait = self._cursor.wait
        if wait is not None and wait.json is not None:
            self._calls.passed(wait.json.followed())
        if self._run is not None and next(self._run, self) is self:
            self._run = None
        return self._calls.take()

    def wait(self) -> stream.Wait | None:
        wait, calls = self._cursor.wait, self._calls
        if wait is None or wait.kind == "held":
            return wait if self._cursor.at == len(self._cursor.text) else None
        if not self._cursor.idle or not (calls.passes_text if self._between else calls.passes_arguments):
            return None
        if wait.json is not None:
            wait.json.lend(calls.room)
        return wait

    def finish(self, cut: bool = False) -> list[Piece]:
        self._cursor.final = True
        self._cursor.cut = cut
        pieces = self.feed("")
        self._calls.finish()
        return pieces + self._calls.take()

    def _read(self) -> Generator[None, None, None]:
        while True:
            found = yield from until(self._cursor, self._opens, self._calls.content, "text")
            if found is None:
                return
            self._between = False
            yield from self._call(found)
            self._between = True

    def _call(self, found: Found) -> Generator[None, None, None]:
        """What is no call after all is text, its edges included."""
        cursor = self._cursor
        opener = cursor.text[found.start : found.end]
        cursor.at = found.start
        cursor.mark()
        cursor.at = found.end
        context = Context(cursor, self._calls)
        try:
            yield from self._body(context, found.groups)
        except Malformed as error:
            context.give_back(opener, error)
            return
        cursor.commit()

    def _body(self, context: Context, groups: Mapping[str, str]) -> Generator[None, None, None]:
        if self._objects:
            yield from _OBJECTS.read(context)
            yield from self._close()
        elif self._name in groups:
            yield from self._named(context, groups[self._name])
            yield from self._close()
        else:
            yield from self._whole(context, groups)

    def _named(self, context: Context, name: str) -> Generator[None, None, None]:
        """The opener has the name, and the content is the arguments."""

        def begin() -> Sink:
            context.start(name)
            return context.calls.arguments

        if not context.calls.known(name, marked=True):
            raise Malformed
        yield from json_calls.arguments(context.cursor, begin)
        if not context.calls.open:
            begin()
        context.calls.end()

    def _whole(self, context: Context, groups: Mapping[str, str]) -> Generator[None, None, None]:
        """Content that is read when it has ended."""
        parts: list[str] = []
        size = 0

        def keep(text: str) -> None:
            nonlocal size
            size += len(text)
            if size > MAX_ARGUMENTS:
                raise Malformed
            parts.append(text)

        end = yield from until(context.cursor, self._closes, keep, None)
        if end is None and context.cursor.cut:
            raise Malformed
        text = self._seals.off("".join(parts))
        if self._field.content == "python-call-list":
            yield from _python(context, text.strip())
            return
        for call in calls_of(self._field, text, {**groups, **({} if end is None else end.groups)}, self._tools):
            self._start(context, call)

    def _start(self, context: Context, call: Called) -> None:
        try:
            context.start(call.name, call.native_id)
        except Malformed:
            if not context.started:
                raise
            context.calls.content(f'{{"name": {quote(call.name)}, "arguments": {call.arguments}}}')
            return
        context.calls.arguments(call.arguments)
        context.calls.end()

    def _close(self) -> Generator[None, None, None]:
        """Skip the end of the field and white space in front of it, if it is there."""
        cursor = self._cursor
        cursor.mark()
        while True:
            space = len(cursor.text) - len(cursor.text[cursor.at :].lstrip())
            found = self._closes.find(cursor.text, space, cursor.final) if space < len(cursor.text) else None
            if found is not None and found.start == space and found.edge is not None:
                cursor.at = found.end
                cursor.commit()
                return
            undecided = space == len(cursor.text) or (found is not None and found.start == space)
            if cursor.final or not undecided:
                cursor.rewind()
                return
            yield from cursor.more()


def _python(context: Context, text: str) -> Generator[None, None, None]:
    """The calls in ``text``, which is there as a whole."""
    inner = Context(Cursor(), context.calls)
    inner.cursor.feed(text)
    inner.cursor.final = True
    try:
        yield from PythonCalls().read(inner)
    finally:
        if inner.started:
            context.started = True
            context.cursor.commit()


def form_of(field: Field) -> tuple[bool, str]:
    """Whether the content is objects with name and arguments, and which group of the opener is the name of a call whose
    arguments it is ("": none). Neither: it has to be read as a whole."""
    if field.content != "json" or any(
        field.args.get(name) for name in ("unquoted_keys", "string_delims", "allow_non_json")
    ):
        return False, ""
    function: Any = field.transform
    if isinstance(function, Mapping):
        function = function.get("function", function)
    if function is None or function == _CONTENT:
        return not field.each, ""
    if not isinstance(function, Mapping) or not set(function) <= {"name", "arguments"}:
        return False, ""
    name, arguments = str(function.get("name", "")), function.get("arguments")
    if arguments == _CONTENT and not field.each:
        return False, name[1:-1]
    prefix = "{" if field.each else "{content."
    objects = any(name == f"{prefix}{key}}}" for key in NAMES) and any(
        arguments == f"{prefix}{key}}}" for key in ARGUMENTS
    )
    return objects, ""
