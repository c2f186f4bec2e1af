"""Machine: the tool parser of every family. It looks for what may begin a call and lets the call's body read it."""

import logging

from smg.core import stream
from smg.parsing.base import Content, Parser, ParserFactory, Piece, Start
from smg.parsing.engine.calls import Calls
from smg.parsing.engine.cursor import Cursor, Malformed, Wait
from smg.parsing.engine.grammar import Call, Context, Grammar, special_texts
from smg.parsing.markers import Hit, Markers

logger = logging.getLogger(__name__)


def factory(grammar: Grammar) -> ParserFactory:
    """The parser of ``grammar``, as ``parsing.table`` wants it."""

    markers = special_texts(grammar)

    def make(start: Start) -> Parser:
        return Machine(grammar, start, markers)

    return make


class Machine:
    """Splits one choice's text into Content and calls."""

    def __init__(self, grammar: Grammar, start: Start, markers: tuple[str, ...] = ()) -> None:
        self.markers = markers
        self._grammar = grammar
        self._cursor = Cursor(start.seals)
        if grammar.prefill and start.prompt_tail.rstrip().endswith(grammar.prefill):
            self._cursor.feed(start.seals.put(grammar.prefill))
        self._failed = start.failed
        self._calls = Calls(start, grammar.undeclared)
        self._inside = False
        self._owed: tuple[str, ...] = ()  # closers of the last call, which had none so far
        self._leading = True
        self._between = False  # no call is being read
        self._legal = self._legal_now()
        self._run: Wait[None] | None = self._content()

    def feed(self, text: str) -> list[Piece]:
        if self._run is None:
            return [Content(text)]
        self._cursor.feed(text)
        self._resume(self._run)
        return self._calls.take()

    def wait(self) -> stream.Wait | None:
        cursor, calls = self._cursor, self._calls
        if self._run is None:
            return stream.Wait("text")
        if cursor.wait is not None and cursor.wait.kind == "held":
            return cursor.wait if cursor.at == len(cursor.text) else None
        if not cursor.idle:
            return None
        if self._between:
            return stream.Wait("text", self._legal.heads) if calls.passes_text else None
        if cursor.wait is None or not calls.passes_arguments:
            return None
        # Strings of other formats are not counted: nobody holds what passes.
        if cursor.wait.json is not None:
            cursor.wait.json.lend(calls.room)
        return cursor.wait

    def finish(self, cut: bool = False) -> list[Piece]:
        self._cursor.final = True
        self._cursor.cut = cut
        if self._run is not None:
            self._resume(self._run)
        self._calls.finish()
        return self._calls.take()

    def _resume(self, run: Wait[None]) -> None:
        wait = self._cursor.wait
        if wait is not None and wait.json is not None:
            self._calls.passed(wait.json.followed())
        try:
            next(run)
        except StopIteration:
            self._run = None
        except Exception:
            logger.exception("a tool parser failed; the rest of the output is passed on unparsed")
            self._failed("tools")
            self._run = None
            self._cursor.rewind()
            self._calls.finish()
            self._calls.content(self._cursor.text[self._cursor.at :])

    def _content(self) -> Wait[None]:
        """Pass text on up to the next marker, and act on that."""
        cursor = self._cursor
        while True:
            hit = self._legal.find(cursor.text, cursor.at, cursor.final)
            end = len(cursor.text) if hit is None else hit.start
            if end > cursor.at:
                self._calls.content(cursor.text[cursor.at : end])
                cursor.at = end
                if self._leading and not self._calls.leading:
                    self._legal = self._legal_now()
                    continue
            if hit is not None and hit.marker is not None:
                yield from self._marker(hit, hit.marker)
                self._legal = self._legal_now()
            elif cursor.final:
                return
            else:
                self._between = True
                yield
                self._between = False

    def _legal_now(self) -> Markers:
        grammar = self._grammar
        self._leading = self._calls.leading
        texts = [*grammar.begin, *grammar.drop, *self._owed]
        patterns = list(grammar.drop_patterns)
        if self._inside:
            texts += grammar.end
        if self._inside or not grammar.wrapped:
            for call in grammar.calls:
                if call.leading and not self._leading:
                    continue
                texts += call.open
                if call.pattern is not None:
                    patterns.append(call.pattern)
        return self._cursor.markers(*texts, patterns=tuple(patterns))

    def _marker(self, hit: Hit, marker: str) -> Wait[None]:
        grammar = self._grammar
        text = self._cursor.text[hit.start : hit.end]
        self._cursor.at = hit.end
        if marker in self._owed:
            self._owed = ()
        elif marker in grammar.begin:
            self._inside = True
            self._calls.begin(text)
        elif self._inside and marker in grammar.end:
            self._inside = False
            self._calls.end_wrapper(text)
        elif marker not in grammar.drop and marker not in (name for name, _ in grammar.drop_patterns):
            yield from self._call(marker, text)

    def _call(self, marker: str, text: str) -> Wait[None]:
        """An opener: read its calls. What turns out to be none is text, and is looked through for other markers."""
        cursor = self._cursor
        forms = [call for call in self._grammar.calls if marker in call.open]
        cursor.at -= len(text)
        cursor.mark()
        if forms:
            cursor.at += len(text)
        else:
            forms = [call for call in self._grammar.calls if call.pattern is not None and call.pattern[0] == marker]
            text = text[0]
        context = Context(cursor, self._calls)
        try:
            call = yield from self._form(forms)
            yield from call.body.read(context)
        except Malformed as error:
            context.give_back(text, error)
            return
        cursor.commit()
        yield from self._close(call)

    def _form(self, forms: list[Call]) -> Wait[Call]:
        if all(not call.first for call in forms):
            return forms[0]
        char = yield from self._cursor.visible()
        for call in forms:
            if not call.first or (char and char in call.first):
                return call
        raise Malformed

    def _close(self, call: Call) -> Wait[None]:
        """Skip the closer of a call and white space in front of it, if it is there."""
        self._owed = ()
        if not call.close:
            return
        cursor = self._cursor
        cursor.mark()
        try:
            yield from cursor.visible()
            found = yield from cursor.match(cursor.markers(*call.close))
        except Malformed:
            found = None
        if found is None:
            cursor.rewind()
            self._owed = call.close
        cursor.commit()
