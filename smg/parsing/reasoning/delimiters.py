"""Reasoning between an opener and a closer, as ``<think>…</think>`` (spec parsers 5.1).

One machine for the whole family; a ``Delimiters`` says how a member differs. It yields everything that can no longer
be part of a marker, takes repeated blocks, and gives the same answer however the text was cut.
"""

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from smg.core.stream import SEAL, Wait
from smg.parsing.base import Content, ParserFactory, Piece, Reasoning, Start
from smg.parsing.markers import Hit, Markers

# Does a call begin after a tool marker, which ends at the given place of the text? None: more text is needed to tell.
Head: TypeAlias = Callable[[str, int], bool | None]

OPENER = "<think>"
CLOSER = "</think>"
MAX_BLANK = 1024  # characters of leading white space that may wait for a marker
HEAD_SPAN = 96  # characters after a tool marker within which its call must begin

_NAME = re.compile(r"\s*[\w.:-]+(?:\n|<)")
_NAME_SO_FAR = re.compile(r"\s*[\w.:-]*")


class Delimiters(msgspec.Struct, frozen=True):
    """One member of the family. Openers, closers and tool markers may have several spellings.

    ``start``: ``prompt`` begins inside when the prompt ends with an opener, ``inside`` always unless the prompt ends
    with a closed block or thinking is off. ``tools`` are the markers of a call, which end reasoning that the model
    forgot to close (case RP-04) if ``head`` (None: always) says that a call follows; they are looked for only when
    tools are offered. ``drop`` are control texts that are not shown outside reasoning. ``tokens`` are what markers are
    made of that take several. ``trim``: the line end right after a closer belongs to it. ``once``: only the first block
    counts.
    """

    openers: tuple[str, ...] = (OPENER,)
    closers: tuple[str, ...] = (CLOSER,)
    start: Literal["prompt", "inside"] = "prompt"
    tools: tuple[str, ...] = ()
    head: Head | None = None
    drop: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    trim: bool = False
    once: bool = False

    def starts_inside(self, start: Start) -> bool:
        """Whether the output begins inside a block."""
        if start.prompt_tail.rstrip().endswith(tuple(opener.rstrip() for opener in self.openers)):
            return True
        return self.start == "inside" and start.thinking is not False and not self.closed(start)

    def closed(self, start: Start) -> bool:
        """Whether the prompt ends with a closed block."""
        return start.prompt_tail.rstrip().endswith(tuple(closer.rstrip() for closer in self.closers))


class DelimiterFactory(msgspec.Struct, frozen=True):
    """Makes parsers of ``rules``, as ``parsing.table`` wants it."""

    rules: Delimiters

    def __call__(self, start: Start) -> "DelimiterParser":
        return DelimiterParser(self.rules, start)


def rules_of(factory: ParserFactory | None) -> Delimiters | None:
    """The delimiters that parsers of ``factory`` look for, also where another machine reads them; None: it has none."""
    rules = getattr(factory, "rules", None)
    return rules if isinstance(rules, Delimiters) else None


def factory(delimiters: Delimiters) -> ParserFactory:
    """The parser of ``delimiters``."""
    return DelimiterFactory(delimiters)


class DelimiterParser:
    """Splits one choice's text into Reasoning and Content."""

    def __init__(self, delimiters: Delimiters, start: Start) -> None:
        self._rules = delimiters
        self._inside = delimiters.starts_inside(start)
        # Until the first visible character white space may belong to a marker, and a stray closer is no text.
        self._fresh = True
        self._buffer = ""
        self._at = 0  # where in the buffer the undecided text begins
        closers = delimiters.closers
        if delimiters.trim:
            closers = (*closers, *(closer + "\n" for closer in closers))
        self._closers = frozenset(closers)
        tools = delimiters.tools if start.tools else ()
        self.markers: tuple[str, ...] = (
            *delimiters.openers,
            *delimiters.closers,
            *tools,
            *delimiters.drop,
            *delimiters.tokens,
        )
        # A marker that came as its token is one, whatever follows.
        self._as_tokens = frozenset(tool for tool in tools if start.seals.put(tool).startswith(SEAL))
        legal = start.seals.markers
        self._legal_first = legal(*delimiters.openers, *(() if self._inside else closers))
        self._legal_inside = legal(*delimiters.openers, *closers, *tools)
        self._legal_outside = legal(*delimiters.openers, *delimiters.drop)
        self._legal_after = legal(*delimiters.drop) if delimiters.once else self._legal_outside
        self._was_inside = self._inside

    def feed(self, text: str) -> list[Piece]:
        return self._read(text, final=False)

    def wait(self) -> Wait | None:
        if self._fresh or self._at < len(self._buffer):
            return None
        return Wait("reasoning" if self._inside else "text", self._legal().heads)

    def finish(self, cut: bool = False) -> list[Piece]:
        return self._read("", final=True)

    def _read(self, text: str, final: bool) -> list[Piece]:
        self._buffer = self._buffer[self._at :] + text
        self._at = 0
        pieces: list[Piece] = []
        if not self._fresh or self._begin(final):
            while self._step(pieces, final):
                pass
        return pieces

    def _begin(self, final: bool) -> bool:
        """The first visible characters. False: it is not yet clear what they are.

        White space in front of an opener is dropped, and so is a closer of a block that was never open. White space in
        front of any other closer is a block's text.
        """
        blank = len(self._buffer) - len(self._buffer.lstrip())
        if blank <= MAX_BLANK:
            if blank == len(self._buffer) and not final:
                return False
            hit = self._legal_first.match(self._buffer, blank, final)
            if hit is not None and hit.marker is None:
                return False
            if hit is not None:
                opens = hit.marker in self._rules.openers
                self._at = blank if opens else hit.end
        self._fresh = False
        return True

    def _step(self, pieces: list[Piece], final: bool) -> bool:
        """Take text up to and including the next marker. False: all that can be told for now has been taken."""
        hit = self._legal().find(self._buffer, self._at, final)
        self._emit(pieces, len(self._buffer) if hit is None else hit.start)
        if hit is None or hit.marker is None:
            return False
        if self._inside and hit.marker in self._rules.tools:
            return self._tool_marker(pieces, hit, final)
        self._at = hit.end
        if hit.marker in self._rules.openers:
            self._inside = self._was_inside = True
        elif hit.marker in self._closers:
            self._inside = False
        return True

    def _legal(self) -> Markers:
        if self._inside:
            return self._legal_inside
        return self._legal_after if self._was_inside else self._legal_outside

    def _tool_marker(self, pieces: list[Piece], hit: Hit, final: bool) -> bool:
        """The marker of a call inside reasoning: the call itself stays in the text, for the tool parser."""
        head = None if hit.marker in self._as_tokens else self._rules.head
        begins = head is None or head(self._buffer, hit.end)
        if begins is None and not final:
            return False
        if begins:
            self._inside = False
        else:
            self._emit(pieces, hit.end)
        return True

    def _emit(self, pieces: list[Piece], end: int) -> None:
        text = self._buffer[self._at : end]
        self._at = end
        if text:
            pieces.append(Reasoning(text) if self._inside else Content(text))


def head_of(*heads: str) -> Head:
    """A call begins with white space and one of ``heads``."""

    def begins(buffer: str, end: int) -> bool | None:
        rest = buffer[end : end + HEAD_SPAN].replace(SEAL, "").lstrip()
        if any(rest.startswith(head) for head in heads):
            return True
        undecided = len(buffer) - end < HEAD_SPAN and any(head.startswith(rest) for head in heads)
        return None if undecided else False

    return begins


def name_head(buffer: str, end: int) -> bool | None:
    """A call begins with the tool's name, and a line end or a tag after it."""
    rest = buffer[end : end + HEAD_SPAN].replace(SEAL, "")
    found = _NAME.match(rest)
    if found is not None:
        return True
    undecided = len(buffer) - end < HEAD_SPAN and _NAME_SO_FAR.fullmatch(rest) is not None
    return None if undecided else False
