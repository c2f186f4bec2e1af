"""Grammar: what a family's table says, and what the machine gives the readers of its calls (spec parsers 11)."""

from typing import Protocol

import msgspec

from smg.parsing.engine.calls import Calls
from smg.parsing.engine.cursor import Cursor, Wait
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


class Body(Protocol):
    """Reads the calls behind one opener: name, arguments, and ``Context.calls.end``.

    It stops in front of the closer, and raises ``Malformed`` wherever the text has not its form.
    """

    def read(self, context: Context) -> Wait[None]: ...


class Call(msgspec.Struct, frozen=True):
    """One form of a call.

    ``open`` are the spellings of its opener, or ``pattern`` is what it begins with when it has none; a pattern is not
    consumed. ``first``: characters one of which must follow the opener, if not empty. ``close`` are the spellings of
    its closer, which may be missing.
    """

    body: Body
    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    first: str = ""
    pattern: Pattern | None = None


class Grammar(msgspec.Struct, frozen=True):
    """A tool-call format. ``calls`` are tried in order.

    ``begin`` and ``end`` open and close a wrapper around calls; ``wrapped``: calls count only inside one. ``drop`` are
    control texts that are never shown, and ``drop_patterns`` those that no list can spell.
    """

    calls: tuple[Call, ...]
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    wrapped: bool = False
    drop: tuple[str, ...] = ()
    drop_patterns: tuple[Pattern, ...] = ()

    def texts(self) -> tuple[str, ...]:
        """Every marker of the format, as the vocabulary may have it."""
        own = (text for call in self.calls for text in (*call.open, *call.close))
        return tuple(dict.fromkeys((*self.begin, *self.end, *self.drop, *own)))
