"""Arguments in Gemma's notation, ``{city:<|"|>Oslo<|"|>,days:3}``: bare keys, quotes of their own (spec parsers 9)."""

import re

import msgspec

from smg.core.stream import SEAL
from smg.parsing.engine import json_text, values
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait
from smg.parsing.engine.grammar import Context
from smg.parsing.engine.named import Begin
from smg.parsing.markers import markers

MAX_KEY = 512  # characters

_COLON = markers(":")
_BARE = re.compile(rf"[^,{{}}\[\]<{SEAL}]*")


class GemmaArguments(msgspec.Struct, frozen=True):
    """``quote`` stands on both sides of a string."""

    quote: str

    def read(self, context: Context, name: str, begin: Begin) -> Wait[None]:
        cursor = context.cursor
        if (yield from cursor.visible()) != "{":
            raise Malformed
        cursor.at += 1
        if (yield from cursor.visible()) == "}":
            cursor.at += 1
            return
        key = yield from self._key(cursor)
        sink = begin()
        sink(f"{{{values.quote(key)}: ")
        yield from self._value(cursor, sink, 1)
        yield from self._members(cursor, sink, 1)

    def _key(self, cursor: Cursor) -> Wait[str]:
        yield from cursor.visible()
        if (yield from cursor.match(cursor.markers(self.quote))) is not None:
            key, _ = yield from cursor.word(cursor.markers(self.quote), MAX_KEY)
            if (yield from cursor.visible()) != ":":
                raise Malformed
            cursor.at += 1
            return key
        key, _ = yield from cursor.word(_COLON, MAX_KEY)
        key = key.strip().strip("\"'")
        if not key or any(char in "{}[],<" for char in key):
            raise Malformed
        return key

    def _members(self, cursor: Cursor, sink: Sink, depth: int, first: bool = False) -> Wait[None]:
        """The members of an object behind its first, or behind its bracket."""
        while True:
            char = yield from cursor.visible()
            if char == "}":
                cursor.at += 1
                sink("}")
                return
            comma = ""
            if not first:
                if char != ",":
                    raise Malformed
                cursor.at += 1
                if (yield from cursor.visible()) == "}":
                    continue
                comma = ", "
            first = False
            cursor.mark()
            try:
                key = yield from self._key(cursor)
            except Malformed:
                cursor.rewind()
                raise Malformed(comma) from None
            cursor.commit()
            sink(f"{comma}{values.quote(key)}: ")
            yield from self._value(cursor, sink, depth)

    def _value(self, cursor: Cursor, sink: Sink, depth: int) -> Wait[None]:
        if depth > json_text.MAX_DEPTH:
            raise Malformed
        char = yield from cursor.visible()
        if char == "{":
            cursor.at += 1
            sink("{")
            yield from self._members(cursor, sink, depth + 1, first=True)
        elif char == "[":
            cursor.at += 1
            sink("[")
            yield from self._items(cursor, sink, depth + 1)
        elif (yield from cursor.match(cursor.markers(self.quote))) is not None:
            sink('"')
            yield from cursor.until(cursor.markers(self.quote), lambda text: sink(json_text.escape(text)), tuple)
            sink('"')
        elif char == '"':
            yield from json_text.value(cursor, sink)
        else:
            yield from self._scalar(cursor, sink)

    def _items(self, cursor: Cursor, sink: Sink, depth: int) -> Wait[None]:
        first = True
        while True:
            char = yield from cursor.visible()
            if char == "]":
                cursor.at += 1
                sink("]")
                return
            if not first:
                if char != ",":
                    raise Malformed
                cursor.at += 1
                if (yield from cursor.visible()) == "]":
                    continue
                sink(", ")
            first = False
            yield from self._value(cursor, sink, depth)

    def _scalar(self, cursor: Cursor, sink: Sink) -> Wait[None]:
        while True:
            found = _BARE.match(cursor.text, cursor.at)
            assert found is not None
            if found.end() - cursor.at > MAX_KEY:
                raise Malformed
            if found.end() < len(cursor.text):
                break
            yield from cursor.more()
        text = found[0].strip()
        if not text:
            raise Malformed
        cursor.at = found.end()
        sink(json_text.WORDS.get(text) or values.json_or_text(text))
