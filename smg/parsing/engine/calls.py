"""Calls: the output side of the machine. What it was told becomes pieces, within the rules all formats share
(spec parsers 1): unknown tools, limits, white space around calls, and no text lost."""

from smg.core.request import Tool
from smg.parsing.base import CallArguments, CallEnd, CallStart, Content, Piece, Start, Surplus
from smg.parsing.engine.cursor import Malformed

MAX_CALLS = 256
MAX_ARGUMENTS = 16 << 20  # characters of one call's arguments
MAX_BLANK = 1024  # characters of white space that may wait for what follows them
MAX_PENDING = 64 << 10  # characters a wrapper without a call may wait for one


class Calls:
    """Collects pieces; ``take`` hands them out. ``open`` is True between the start and the end of a call, ``leading``
    as long as only calls and white space have come. ``undeclared`` is the format's own policy for unknown tools."""

    def __init__(self, start: Start, undeclared: str | None = None) -> None:
        self._policy = start.unknown_tools or undeclared
        self.open = False
        self.started = 0
        self.leading = True
        self._parallel = start.parallel
        self._tools = {tool.name: tool for tool in start.tools}
        self._out: list[Piece] = []
        self._muted = False
        self._size = 0
        self._arguments: list[str] = []
        # White space since the beginning or the last call, which goes when a call follows; None: text has come.
        self._blank: str | None = ""
        # What came since a wrapper opened that has had no call yet, and whether it is a marker; None: no such wrapper.
        self._pending: list[tuple[str, bool]] | None = None
        self._waiting = 0

    def take(self) -> list[Piece]:
        self._flush()
        out, self._out = self._out, []
        return out

    @property
    def passes_text(self) -> bool:
        """Whether text that comes now goes out as it is, and changes nothing here."""
        return self._blank is None and self._pending is None and not self.open

    @property
    def passes_arguments(self) -> bool:
        """The same of arguments."""
        return self.open and not self._muted and self._size > 0

    @property
    def room(self) -> int:
        """Characters that the arguments of the open call may still have."""
        return MAX_ARGUMENTS - self._size

    def passed(self, count: int) -> None:
        """``count`` characters of the arguments have gone another way."""
        self._size += count

    def tool(self, name: str) -> Tool | None:
        """The tool ``name`` of the request; None when it offers no such tool."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools of the request."""
        return tuple(self._tools)

    def content(self, text: str) -> None:
        if not text:
            return
        if self._pending is not None:
            self._wait(text, False)
            return
        if self._blank is not None:
            text = self._blank + text
            if len(text) <= MAX_BLANK and text.isspace():
                self._blank = text
                return
            self._blank = None
        self.leading = False
        self._out.append(Content(text))

    def begin(self, marker: str) -> None:
        """A wrapper opens."""
        if self._pending is None:
            self._pending = []
            self._waiting = 0
        self._wait(marker, True)

    def end_wrapper(self, marker: str) -> None:
        """A wrapper closes; if it had no call, it was text. White space in front of the closer belongs to it."""
        if self._pending is not None:
            self._wait(marker, True)
            self.give_back()
        elif self._blank:
            self._blank = ""

    def give_back(self) -> None:
        """No call came in the wrapper: all of it is text."""
        pending, self._pending = self._pending or [], None
        for text, _ in pending:
            self.content(text)

    def known(self, name: str, marked: bool) -> bool:
        """Whether a call of ``name`` may start; ``marked`` is False for formats without a marker of their own, where an
        object that names no tool is an answer (case TP-10)."""
        if not self._tools or name in self._tools:
            return True
        return self._policy != "text" and (marked or self._policy is not None)

    def start(self, name: str, native_id: str | None = None, *, marked: bool = True) -> None:
        """A call starts.

        Raises:
            Malformed: this is no call after all.
        """
        if not name or not self.known(name, marked) or self.started >= MAX_CALLS:
            raise Malformed
        pending, self._pending = self._pending or [], None
        failed = "".join(text for text, is_marker in pending if not is_marker)
        self.content(failed.strip())
        dropped = self._policy == "drop" and bool(self._tools) and name not in self._tools
        self._muted = dropped or (self.started > 0 and not self._parallel)
        self._blank = None
        self._size = 0
        self.open = True
        self.started += not dropped
        if not self._muted:
            self._out.append(CallStart(name, native_id))
        elif not dropped:
            self._out.append(Surplus())

    def arguments(self, text: str) -> None:
        """More of the arguments' JSON text.

        Raises:
            Malformed: the call is too long; ``text`` was not taken.
        """
        if len(text) > self.room:
            raise Malformed
        self._size += len(text)
        self._arguments.append(text)

    def end(self, complete: bool = True) -> None:
        """The call is over; one that was given no arguments has none (case TP-02)."""
        if complete and not self._size:
            self.arguments("{}")
        self._flush()
        if not self._muted:
            self._out.append(CallEnd(complete))
        self.open = self._muted = False
        self._blank = ""

    def finish(self) -> None:
        """The output is over."""
        if self.open:
            self.end(complete=False)
        self.give_back()
        if self._blank and not self.started:
            self._out.append(Content(self._blank))
        self._blank = None

    def _flush(self) -> None:
        text = "".join(self._arguments)
        self._arguments.clear()
        if text and not self._muted:
            self._out.append(CallArguments(text))

    def _wait(self, text: str, is_marker: bool) -> None:
        assert self._pending is not None
        self._pending.append((text, is_marker))
        self._waiting += len(text)
        if self._waiting > MAX_PENDING:
            self.give_back()
