"""Reasoning and the answer of an output, by a response template.

The parser follows all fields, takes reasoning and the answer out of their edges, and leaves calls as they are written,
for the parser behind it. What a template would throw away, text that is no field's, is content here, but for white
space and what begins a message.
"""

from collections.abc import Callable, Generator

from smg.core import stream
from smg.core.stream import TextKind
from smg.parsing.base import Content, Piece, Reasoning, Start
from smg.parsing.declared.edges import Edges, Found, begun
from smg.parsing.declared.template import CALLS, REASONING, Edge, Field, Template
from smg.parsing.engine.cursor import Cursor


def until(
    cursor: Cursor, edges: Edges, sink: Callable[[str], object], kind: TextKind | None
) -> Generator[None, None, Found | None]:
    """Consume up to an edge and the edge too; what comes before it goes to ``sink`` as it arrives. None: the output
    ended without one. ``kind`` is what the text is to the client, None when the sink only collects it.

    Raises:
        TimeoutError: as ``Edges.find``.
    """
    while True:
        found = edges.find(cursor.text, cursor.at, cursor.final)
        end = len(cursor.text) if found is None else found.start
        text, cursor.at = cursor.text[cursor.at : end], end
        if cursor.final and found is None:
            text = edges.trimmed(text)
        if text:
            sink(text)
        if found is not None and found.edge is not None:
            cursor.at = found.end
            return found
        if cursor.final:
            return None
        yield from cursor.more(None if edges.heads is None else stream.Wait(kind or "held", edges.heads))


class DeclaredText:
    """With ``together`` reasoning stays in the answer, as it is written. Calls that nobody may make are text."""

    def __init__(self, template: Template, start: Start, *, together: bool = False) -> None:
        self.markers = template.markers
        self._seals = start.seals
        self._together = together
        self._cursor = Cursor(start.seals)
        self._out: list[Piece] = []
        self._field: Field | None = None
        self._fresh = False  # white space that comes now is not shown
        self._shown = False  # some text of the present field has come
        self._came: set[str] = set()
        self._fields = {
            field.open: field
            for field in reversed(template.fields)
            if field.open is not None and (start.tools or field.name != CALLS)
        }
        self._implicit = template.implicit
        between = template.anchor if self._implicit is None else self._implicit.close
        self._outside = self._edges(*self._fields, between, lines=True)
        self._run: Generator[None, None, None] | None = self._read()
        if prompt := begun(template, start.prompt_tail):
            self.feed(start.seals.put(prompt))

    def feed(self, text: str) -> list[Piece]:
        self._cursor.feed(text)
        if self._run is not None and next(self._run, self) is self:
            self._run = None
        out, self._out = self._out, []
        return out

    def wait(self) -> stream.Wait | None:
        first = self._field is not None and bool(self._field.join) and not self._shown
        return self._cursor.wait if self._cursor.idle and not self._fresh and not first else None

    def finish(self, cut: bool = False) -> list[Piece]:
        self._cursor.final = True
        return self.feed("")

    def _edges(self, *edges: Edge | None, lines: bool) -> Edges:
        return Edges([edge for edge in edges if edge is not None], self._seals, lines=lines)

    def _read(self) -> Generator[None, None, None]:
        as_written = False
        while True:
            # White space behind what stays as it is written is for the parser that reads it.
            strip = not as_written and (self._implicit is None or self._implicit.strip)
            self._begin(self._implicit, strip=strip)
            found = yield from until(self._cursor, self._outside, self._show, "text")
            if found is None:
                return
            field = self._fields.get(found.edge) if found.edge is not None else None
            as_written = field is not None and self._stays(field)
            if field is not None:
                yield from self._inside(field, self._cursor.text[found.start : found.end], as_written)

    def _stays(self, field: Field) -> bool:
        return field.name == CALLS or (self._together and field.name in REASONING)

    def _inside(self, field: Field, opener: str, as_written: bool) -> Generator[None, None, None]:
        """A field up to and including its end."""
        strip = field.strip and not as_written
        self._begin(None if as_written else field, strip=strip)
        if as_written:
            self._show(opener)
        kind: TextKind = "reasoning" if self._thinks else "text"
        found = yield from until(self._cursor, self._edges(field.close, lines=strip), self._show, kind)
        if found is not None and as_written:
            self._show(self._cursor.text[found.start : found.end])

    @property
    def _thinks(self) -> bool:
        return self._field is not None and self._field.name in REASONING

    def _begin(self, field: Field | None, *, strip: bool) -> None:
        self._field = field
        self._fresh = strip
        self._shown = False

    def _show(self, text: str) -> None:
        if self._fresh:
            text = text.lstrip()
            if not text:
                return
            self._fresh = False
        if self._field is not None and not self._shown:
            text = (self._field.join if self._field.name in self._came else "") + text
            self._came.add(self._field.name)
        self._shown = True
        self._out.append(Reasoning(text) if self._thinks else Content(text))
