"""Grammar: what a family's table says, and what the machine gives the readers of its calls (spec parsers 11)."""

import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from smg.parsing.engine.calls import Calls
from smg.parsing.engine.cursor import Cursor, Malformed, Wait
from smg.parsing.markers import Pattern


class Context:
    """What a body reads from and writes to. ``started`` tells whether the opener has brought a call yet."""

    def __init__(self, cursor: Cursor, calls: Calls) -> None:
        self.cursor = cursor
        self.calls = calls
        self.started = False

    def start(self, name: str, native_id: str | None = None, *, marked: bool = True) -> None:
        """Start a call: what was read so far is no longer text.

        Raises:
            Malformed: this is no call after all.
        """
        self.calls.start(name, native_id, marked=marked)
        self.started = True
        self.cursor.commit()

    def give_back(self, opener: str, error: Malformed) -> None:
        """Reading the calls behind ``opener``, where the cursor is marked, ended with ``error``: nothing of it is lost.

        A call that has started keeps what it was given, and is broken off. Otherwise all that has become no call is
        read once more as text, behind the opener if that has brought none.
        """
        cursor, calls = self.cursor, self.calls
        if calls.open:
            calls.end(complete=False)
            calls.content(error.text)
            cursor.commit()
            return
        cursor.rewind()
        if not self.started:
            calls.content(opener)
            cursor.at += len(opener)


class Body(Protocol):
    """Reads the calls behind one opener: name, arguments, and ``Context.calls.end``.

    It stops in front of the closer, and raises ``Malformed`` wherever the text has not its form.
    """

    def read(self, context: Context) -> Wait[None]: ...


class Call(msgspec.Struct, frozen=True):
    """One form of a call.

    ``open`` are the spellings of its opener, or ``pattern`` is what it begins with when it has none; a pattern is not
    consumed. ``first``: characters one of which must follow the opener, if not empty. ``close`` are the spellings of
    its closer, which may be missing. ``leading``: it counts only where nothing but calls and white space came before.
    """

    body: Body
    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    first: str = ""
    pattern: Pattern | None = None
    leading: bool = False


class Grammar(msgspec.Struct, frozen=True):
    """A tool-call format. ``calls`` are tried in order.

    ``begin`` and ``end`` open and close a wrapper around calls; ``wrapped``: calls count only inside one. ``drop`` are
    control texts that are never shown, and ``drop_patterns`` those that no list can spell. ``undeclared`` is what
    happens to a call of an unknown tool when the operator has not said it. ``prefill`` is text that counts as the
    beginning of the output when the prompt ends with it. ``tokens`` are what markers are made of that take several.
    """

    calls: tuple[Call, ...]
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    wrapped: bool = False
    drop: tuple[str, ...] = ()
    drop_patterns: tuple[Pattern, ...] = ()
    undeclared: str | None = None
    prefill: str = ""
    tokens: tuple[str, ...] = ()


# What may be a token of its own in a marker.
_TOKENS = (re.compile(r"<[^<>\s\x00\x01]+>"), re.compile(r"\[/?[A-Z_]+\]"), re.compile(r"｜\w+｜"))


def special_texts(grammar: Grammar) -> tuple[str, ...]:
    """Every text of the format that a vocabulary may have as a token: they must reach the parser."""
    found = {token for text in _strings(grammar) for token in tokens_in(text)}
    return tuple(sorted(found.union(grammar.tokens)))


def tokens_in(text: str) -> set[str]:
    """What in ``text`` may be a token of its own."""
    return {token for pattern in _TOKENS for token in pattern.findall(text)}


def _strings(value: Any) -> Iterator[str]:
    """The texts anywhere in the tables below ``value``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _strings(getattr(value, name))
