"""Cursor: reading a text that is still arriving.

Readers are generators that yield where they need more text and are resumed when it has come, so that each is written
as if the whole text were there and no text is looked at twice. A cursor consumes as it goes; between ``mark`` and
``commit`` it also keeps what was consumed, so that a reader which finds that this was no call can be rewound.
"""

import re
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from smg.core import stream
from smg.parsing.markers import UNSEALED, Hit, Markers, Seals

T = TypeVar("T")

# A reader: yields for more text, returns its result.
Wait: TypeAlias = Generator[None, None, T]
Sink: TypeAlias = Callable[[str], object]
# Which texts a sink has to see although it puts all others into a string as they stand; None: it has to see all.
Passes: TypeAlias = Callable[[], tuple[str, ...] | None]

MAX_MARKER = 256  # no marker is longer than this
MAX_HELD = 16 << 20  # characters a reader may hold before it must have decided

_SPACE = re.compile(r"\s*")


class Malformed(Exception):
    """What is being read does not have the format's form; its text is given back. Never leaves the engine.

    ``text`` was consumed without becoming anything, and no mark keeps it.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text


class Cursor:
    """``text[at:]`` is what has arrived and is not consumed; ``final`` says that nothing more will, ``cut`` that the
    output broke off there. ``wait`` is what a reader waits for that needs no other text. ``markers`` makes those that
    are legal here."""

    __slots__ = ("_kept", "_mark", "_size", "at", "cut", "final", "markers", "text", "wait")

    def __init__(self, seals: Seals = UNSEALED) -> None:
        self.markers = seals.markers
        self.text = ""
        self.at = 0
        self.final = False
        self.cut = False
        self.wait: stream.Wait | None = None
        self._mark: int | None = None
        self._kept: list[str] = []  # consumed text since the mark that has left ``text``
        self._size = 0

    @property
    def idle(self) -> bool:
        """Whether all text is consumed, and none would be read again."""
        return self.at == len(self.text) and self._mark is None

    def feed(self, text: str) -> None:
        if self._mark is not None:
            self._kept.append(self.text[self._mark : self.at])
            self._size += self.at - self._mark
            self._mark = 0
        self.text = self.text[self.at :] + text
        self.at = 0

    def mark(self) -> None:
        """Keep everything from here on."""
        self.commit()
        self._mark = self.at

    def commit(self) -> None:
        """What was read is what it seemed to be: keep nothing."""
        self._mark = None
        self._kept = []
        self._size = 0

    def rewind(self) -> None:
        """Go back to the mark, if there is one."""
        if self._mark is None:
            return
        if self._kept:
            self.text = "".join(self._kept) + self.text[self._mark :]
            self.at = 0
        else:
            self.at = self._mark
        self.commit()

    def more(self, wait: stream.Wait | None = None) -> Wait[None]:
        """Wait for more text, or only for ``wait``: text before it may go past the reader.

        Raises:
            Malformed: the output is over, or too much is held already.
        """
        if self.final or self._size > MAX_HELD:
            raise Malformed
        self.wait = wait
        yield
        self.wait = None

    def visible(self) -> Wait[str]:
        """Skip white space and return the next character without consuming it; ``""`` at the end of the output."""
        while True:
            found = _SPACE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if self.final:
                return ""
            yield from self.more()

    def match(self, markers: Markers) -> Wait[Hit | None]:
        """Consume the marker that comes here and return it; None when none does."""
        while True:
            if self.at < len(self.text) or self.final:
                hit = markers.match(self.text, self.at, self.final)
                if hit is None:
                    return None
                if hit.marker is not None:
                    self.at = hit.end
                    return hit
            yield from self.more()

    def until(self, markers: Markers, sink: Sink, passes: Passes | None = None, *, held: bool = False) -> Wait[Hit]:
        """Consume up to a marker and the marker too; what comes before it goes to ``sink`` as it arrives.

        ``passes`` is for sinks that put text into a string of the arguments, ``held`` for those that only collect it.

        Raises:
            Malformed: the output ended without one.
        """
        while True:
            hit = markers.find(self.text, self.at, self.final)
            end = len(self.text) if hit is None else hit.start
            if end > self.at:
                sink(self.text[self.at : end])
            self.at = end
            if hit is not None and hit.marker is not None:
                self.at = hit.end
                return hit
            seen = None if passes is None else passes()
            wait = None if seen is None else stream.Wait("arguments", markers.heads + seen, quoted=True)
            yield from self.more(stream.Wait("held", markers.heads) if held else wait)

    def unread(self, hit: Hit) -> None:
        """Stand before ``hit`` again, which was consumed last."""
        self.at -= hit.end - hit.start

    def word(self, markers: Markers, limit: int) -> Wait[tuple[str, Hit]]:
        """Consume a text of up to ``limit`` characters and the marker that ends it; returns both.

        Raises:
            Malformed: it is longer, or the output ended.
        """
        while True:
            hit = markers.find(self.text, self.at, self.final, self.at + limit + MAX_MARKER)
            end = len(self.text) if hit is None else hit.start
            if end - self.at > limit:
                raise Malformed
            if hit is not None and hit.marker is not None:
                word = self.text[self.at : hit.start]
                self.at = hit.end
                return word, hit
            yield from self.more()
