"""Parsing under a forced tool choice: in the form that a JSON constraint asks for, or else in the model's own.

Whatever the engine was asked for, some models go on to write calls as they have learnt to, and some engines do not
constrain at all (case TP-06).
"""

import re

import msgspec

from smg.core import stream
from smg.core.request import Tool
from smg.parsing.base import Parser, ParserFactory, Piece, Start
from smg.parsing.engine.cursor import Wait
from smg.parsing.engine.grammar import Call, Context, Grammar
from smg.parsing.engine.json_calls import ARGUMENTS, NAMES, JsonCalls
from smg.parsing.engine.machine import factory as machine
from smg.parsing.engine.named import Json, Named
from smg.parsing.markers import Pattern
from smg.parsing.tools.json_forms import ARRAY, OBJECT

MAX_KEY = 256  # characters of an object within which its first key must end, to tell what it is

_FIRST_KEY = re.compile(r'\{\s*(?:"((?:[^"\\]|\\.)*)"|\})', re.DOTALL)
# How an array of calls begins; lists in Python's notation and markers in brackets begin otherwise.
_ARRAY = re.compile(r'\[\s*(?:\]|\{\s*["}])')
_ARRAY_SO_FAR = re.compile(r"\[\s*(?:\{\s*)?")
_OBJECT: Pattern = ("{", (r"\{",))
# Models that write one object after the other put one of these between them.
_CALLS = JsonCalls(separators=";,", marked=False)
_JSON = machine(Grammar((Call(_CALLS, pattern=OBJECT), Call(_CALLS, pattern=ARRAY))))


class Forced(msgspec.Struct, frozen=True):
    """Makes the parsers of a choice that must be a call. ``named`` is the only tool it can be of, None for several.

    ``native`` makes the parser of the model's own format, None where it is not known.
    """

    named: Tool | None
    native: ParserFactory | None

    def __call__(self, start: Start) -> Parser:
        return ForcedParser(self, start)


class ForcedParser:
    """Waits for the first characters, which tell the form."""

    def __init__(self, rules: Forced, start: Start) -> None:
        self._named = rules.named
        self._start = start
        self._native = (rules.native or _JSON)(start)
        self.markers = self._native.markers
        self._chosen: Parser | None = None
        self._held = ""

    def feed(self, text: str) -> list[Piece]:
        if self._chosen is None:
            self._held += text
            self._chosen = self._choose(final=False)
            if self._chosen is None:
                return []
            text, self._held = self._held, ""
        return self._chosen.feed(text)

    def wait(self) -> stream.Wait | None:
        return None if self._chosen is None else self._chosen.wait()

    def finish(self, cut: bool = False) -> list[Piece]:
        if self._chosen is None:
            self._chosen = self._choose(final=True) or self._native
            return [*self._chosen.feed(self._held), *self._chosen.finish(cut)]
        return self._chosen.finish(cut)

    def _choose(self, final: bool) -> Parser | None:
        text = self._held.lstrip()
        if not text:
            return None
        waits = not final and len(text) < MAX_KEY
        if text[0] == "[":
            if waits and _ARRAY_SO_FAR.fullmatch(text):
                return None
            return _JSON(self._start) if _ARRAY.match(text) else self._native
        if text[0] != "{":
            return self._native
        if self._named is None:
            return _JSON(self._start)
        key = _FIRST_KEY.match(text)
        if key is None and waits:
            return None
        if key is not None and key[1] is not None and self._is_call(key[1]):
            return _JSON(self._start)
        return machine(_arguments(self._named.name))(msgspec.structs.replace(self._start, parallel=False))

    def _is_call(self, key: str) -> bool:
        """Whether an object that begins with ``key`` is a call rather than arguments."""
        properties = self._named.schema.get("properties") if self._named is not None else None
        own = isinstance(properties, dict) and key in properties
        return not own and key in ("type", "id", *NAMES, *ARGUMENTS)


class _Known(msgspec.Struct, frozen=True):
    """A header that is not written, because everybody knows the name."""

    name: str

    def read(self, context: Context) -> Wait[tuple[str, str | None]]:
        yield from ()
        return self.name, None


def _arguments(name: str) -> Grammar:
    """The whole output is the arguments of a call of ``name``."""
    return Grammar((Call(Named(_Known(name), Json()), pattern=_OBJECT, leading=True),))
