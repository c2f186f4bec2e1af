"""Calls in Python's notation, ``[f(a=1), g()]`` (spec parsers 6.5). A call is read when its bracket closes."""

import re

import msgspec

from smg._native.python_scan import PythonScan
from smg.core import stream
from smg.parsing.engine import python_text
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait
from smg.parsing.engine.grammar import Body, Context
from smg.parsing.engine.json_calls import JsonCalls
from smg.parsing.markers import Pattern

# ``[``, then a name and a bracket: what a list of calls begins with when it has no marker.
LIST: Pattern = ("[", (r"\[(?=[\s\w]|\Z)", r"\s{0,64}", r"[^\W\d][\w.]{0,127}", r"\("))

MAX_NAME = 256

_NAME = re.compile(r"[^\W\d][\w.]*")


class PythonCalls(msgspec.Struct, frozen=True):
    """``brackets``: the calls are a list; else they stand one after the other. ``suffix`` is dropped from names.
    ``otherwise`` reads what is in brackets but begins with ``{``. ``marked`` as for ``JsonCalls``."""

    brackets: bool = True
    suffix: str = ""
    otherwise: Body | None = None
    marked: bool = True

    def read(self, context: Context) -> Wait[None]:
        cursor = context.cursor
        if self.brackets:
            if (yield from cursor.visible()) != "[":
                raise Malformed
            if self.otherwise is not None and (yield from _second(cursor)) == "{":
                yield from self.otherwise.read(context)
                return
            cursor.at += 1
        while True:
            char = yield from cursor.visible()
            if context.started and char == "," and self.brackets:
                cursor.at += 1
            elif context.started and self._over(char):
                cursor.at += self.brackets and char == "]"
                return
            else:
                yield from self._one(context)
                cursor.mark()

    def _over(self, char: str) -> bool:
        """Whether no further call begins with ``char``."""
        return char in ("", "]") if self.brackets else not (char.isalpha() or char == "_")

    def _one(self, context: Context) -> Wait[None]:
        cursor = context.cursor
        name = (yield from _name(cursor)).removesuffix(self.suffix)
        if not context.calls.known(name, self.marked):
            raise Malformed
        parts: list[str] = []
        yield from enclosed(cursor, parts.append)
        arguments = python_text.keywords("".join(parts)[1:-1])
        context.start(name, marked=self.marked)
        context.calls.arguments(arguments)
        context.calls.end()


def _second(cursor: Cursor) -> Wait[str]:
    """The first visible character after the one the cursor stands at; "" at the end of the output."""
    while True:
        ahead = cursor.text[cursor.at + 1 : cursor.at + MAX_NAME]
        rest = ahead.lstrip()
        if rest or cursor.final or len(ahead) == MAX_NAME - 1:
            return rest[:1]
        yield from cursor.more()


def _name(cursor: Cursor) -> Wait[str]:
    """The name in front of a bracket."""
    while True:
        found = _NAME.match(cursor.text, cursor.at)
        if found is None or found.end() - cursor.at > MAX_NAME:
            raise Malformed
        if found.end() < len(cursor.text):
            if cursor.text[found.end()] != "(":
                raise Malformed
            cursor.at = found.end()
            return found[0]
        yield from cursor.more()


def enclosed(cursor: Cursor, sink: Sink) -> Wait[None]:
    """Pass on a bracketed expression, brackets included; brackets inside strings do not count (case TP-09).

    Raises:
        Malformed: brackets do not match, or the output ended.
    """
    scan = PythonScan()
    while True:
        end = scan.run(cursor.text, cursor.at)
        if end > cursor.at:
            sink(cursor.text[cursor.at : end])
            cursor.at = end
        if scan.over:
            return
        if scan.stuck:
            raise Malformed
        yield from cursor.more(stream.Wait("held", python=scan))


class PythonObjects(msgspec.Struct, frozen=True):
    """A list of dicts in Python's or JSON's notation, each one a call as ``each`` reads it."""

    each: JsonCalls

    def read(self, context: Context) -> Wait[None]:
        cursor = context.cursor
        if (yield from cursor.visible()) != "[":
            raise Malformed
        cursor.at += 1
        while True:
            char = yield from cursor.visible()
            if context.started and char == ",":
                cursor.at += 1
            elif context.started and char in ("", "]"):
                cursor.at += len(char)
                return
            elif char == "{":
                yield from self._one(context)
                cursor.mark()
            else:
                raise Malformed

    def _one(self, context: Context) -> Wait[None]:
        parts: list[str] = []
        yield from enclosed(context.cursor, parts.append)
        inner = Cursor()
        inner.feed(python_text.to_json("".join(parts)))
        inner.final = True
        try:
            yield from self.each.one(Context(inner, context.calls))
        except Malformed:
            if context.calls.open:
                context.calls.end(complete=False)
            raise
        context.started = True
        context.cursor.commit()
