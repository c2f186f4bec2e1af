"""Reading JSON as it arrives: the text is checked and passed on, never parsed into objects and printed again (spec
parsers 3).

What goes to the sink is always the beginning of valid JSON. It is the model's own text but for slips that models make
and JSON forbids: raw control characters and unknown escapes in strings, half a surrogate pair, a comma before a closer,
and Python's ``True``, ``False``, ``None``.
"""

import json
import re

from smg._native.json_scan import JsonScan
from smg.core import stream
from smg.parsing.engine.cursor import Cursor, Malformed, Sink, Wait

MAX_DEPTH = 128
MAX_SCALAR = 4096  # characters of a number
MAX_WORD = 512  # characters of a key or a name

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}

_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", re.DOTALL)
_RUN = re.compile(r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt])*')
_SPACE = re.compile(r"\s+")
_SCALAR = re.compile(r'[^\s"\'{}\[\]:,<]+')
_OPEN = re.compile(r"\{\s*")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_HIGH = re.compile(r"[dD][89abAB]")
_LOW = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ANY_SURROGATE = re.compile(r"[dD][89a-fA-F]")
_MAX_HEAD = 1024  # characters of white space that may come before an object's first key


def escape(text: str) -> str:
    """``text`` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def unescape(fragment: str) -> str:
    """The text of what ``string`` gave its sink."""
    text: str = json.loads(f'"{fragment}"')
    return text


def characters(fragment: str) -> list[str]:
    """What ``string`` gave its sink, cut into the spellings of single characters."""
    return _CHARACTER.findall(fragment)


def ignore(text: str) -> None:
    """A sink for what nobody needs."""


def object_head(cursor: Cursor) -> Wait[None]:
    """Look at the beginning of an object without consuming it.

    Raises:
        Malformed: it does not begin like one.
    """
    while True:
        found = _OPEN.match(cursor.text, cursor.at)
        if found is None:
            raise Malformed
        if found.end() < len(cursor.text):
            if cursor.text[found.end()] in '"}':
                return
            raise Malformed
        if found.end() - cursor.at > _MAX_HEAD:
            raise Malformed
        yield from cursor.more()


def string(cursor: Cursor, sink: Sink) -> Wait[None]:
    """Read a string from its opening to its closing quote; ``sink`` gets what is between them, in whole escapes.

    Raises:
        Malformed: the output ended inside it; everything up to there has been passed on.
    """
    cursor.at += 1
    while True:
        found = _RUN.match(cursor.text, cursor.at)
        assert found is not None
        if found.end() > cursor.at:
            sink(found[0])
            cursor.at = found.end()
        if cursor.at == len(cursor.text):
            yield from cursor.more()
            continue
        char = cursor.text[cursor.at]
        if char == '"':
            cursor.at += 1
            return
        if char == "\\":
            yield from _escape(cursor, sink)
        else:
            sink(escape(char))
            cursor.at += 1


def _escape(cursor: Cursor, sink: Sink) -> Wait[None]:
    """An escape that is not one of the two-character ones: by number, unknown, or cut."""
    while True:
        text, at = cursor.text, cursor.at
        rest = len(text) - at
        if rest >= 2 and text[at + 1] != "u":
            # Left to the run, unless it is no escape of JSON: then the backslash means itself.
            if text[at + 1] not in '"\\/bfnrt':
                sink("\\\\")
                cursor.at += 1
            return
        if rest >= 6:
            if _HEX.match(text, at + 2) is None:
                sink("\\\\")
                cursor.at += 1
                return
            if _HIGH.match(text, at + 2) is None:
                sink("\\ufffd" if _ANY_SURROGATE.match(text, at + 2) else text[at : at + 6])
                cursor.at += 6
                return
            if _LOW.match(text, at + 6) is not None:
                sink(text[at : at + 12])
                cursor.at += 12
                return
            if cursor.final or not _may_become_low(text[at + 6 : at + 12]):
                sink("\\ufffd")
                cursor.at += 6
                return
        elif cursor.final:
            sink(text[at:])
            cursor.at = len(text)
        yield from cursor.more()


def _may_become_low(rest: str) -> bool:
    return len(rest) < 6 and _LOW.match(rest + "\\udc00"[len(rest) :]) is not None


def word(cursor: Cursor) -> Wait[str]:
    """Read a short string, such as a key, and return its text.

    Raises:
        Malformed: it is no string, or too long.
    """
    if (yield from cursor.visible()) != '"':
        raise Malformed
    parts: list[str] = []
    size = 0

    def add(part: str) -> None:
        nonlocal size
        size += len(part)
        if size > MAX_WORD:
            raise Malformed
        parts.append(part)

    yield from string(cursor, add)
    return unescape("".join(parts))


def value(cursor: Cursor, sink: Sink) -> Wait[None]:
    """Read one value and pass its text on. While it holds nothing, text that the scanner takes may go past it.

    Raises:
        Malformed: it is no JSON, nested too deeply, or the output ended inside it. The cursor stands before what could
            not be read.
    """
    held: list[str] = []  # a comma, and white space after it, until it is clear that no closer follows
    try:
        yield from _value(cursor, sink, held)
    except Malformed as error:
        raise Malformed("".join(held) + error.text) from None


def _value(cursor: Cursor, sink: Sink, held: list[str]) -> Wait[None]:
    scan = JsonScan()
    while not scan.over:
        if not held:
            end = scan.run(cursor.text, cursor.at)
            if end > cursor.at:
                sink(cursor.text[cursor.at : end])
                cursor.at = end
        if cursor.at == len(cursor.text):
            yield from cursor.more(None if held or sink is ignore else stream.Wait("arguments", json=scan))
        elif scan.in_string:
            yield from _in_string(cursor, scan, sink)
        else:
            yield from _unit(cursor, scan, sink, held)


def _in_string(cursor: Cursor, scan: JsonScan, sink: Sink) -> Wait[None]:
    """What the scanner leaves inside a string."""
    char = cursor.text[cursor.at]
    if char == "\\":
        yield from _escape(cursor, sink)
        return
    if char == '"':
        scan.close_string()
    sink(char if char == '"' else escape(char))
    cursor.at += 1


def _unit(cursor: Cursor, scan: JsonScan, sink: Sink, held: list[str]) -> Wait[None]:
    """What the scanner leaves outside of strings."""
    found = _SPACE.match(cursor.text, cursor.at)
    char = cursor.text[cursor.at]
    if found is not None:
        (held.append if held else sink)(found[0])
        cursor.at = found.end()
    elif char in "{}[],:":
        if not scan.take(char):
            raise Malformed
        if char == ",":
            held.append(char)
        else:
            _release(held, sink, from_=1 if char in "}]" else 0)
            sink(char)
        cursor.at += 1
    else:
        if not scan.scalar(quoted=char == '"'):
            raise Malformed
        _release(held, sink)
        if char == '"':
            sink(char)
            cursor.at += 1
        else:
            sink((yield from scalar(cursor)))


def _release(held: list[str], sink: Sink, from_: int = 0) -> None:
    del held[:from_]
    while held:
        sink(held[0])
        del held[0]


def scalar(cursor: Cursor) -> Wait[str]:
    """Read a number or a word and return it in JSON's spelling.

    Raises:
        Malformed: it is neither.
    """
    while True:
        found = _SCALAR.match(cursor.text, cursor.at)
        if found is None or found.end() - cursor.at > MAX_SCALAR:
            raise Malformed
        if found.end() < len(cursor.text) or cursor.final:
            text = WORDS.get(found[0]) or (found[0] if NUMBER.fullmatch(found[0]) else "")
            if not text:
                raise Malformed
            cursor.at = found.end()
            return text
        yield from cursor.more()
