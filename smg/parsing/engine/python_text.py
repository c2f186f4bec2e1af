"""Python literals as models write them in calls (spec parsers 3). They are read by this grammar, never evaluated.

Values are strings with either quote, numbers, lists, tuples, dicts, the constants in Python's and JSON's spelling, and
bare names, which stand for themselves as strings.
"""

import json
import re

from smg.parsing.engine.cursor import Malformed
from smg.parsing.engine.json_text import NUMBER, WORDS

MAX_DEPTH = 128

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
_QUOTE = re.compile(r"'''|\"\"\"|'|\"")
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(r"\\(?:\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
# What follows an opening quote, up to and including the closing one.
_BODIES = {
    "'": re.compile(r"((?:[^\\']|\\.)*)'", re.DOTALL),
    '"': re.compile(r'((?:[^\\"]|\\.)*)"', re.DOTALL),
    "'''": re.compile(r"((?:[^\\']|\\.|'(?!''))*)'''", re.DOTALL),
    '"""': re.compile(r'((?:[^\\"]|\\.|"(?!""))*)"""', re.DOTALL),
}
_SIMPLE = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}


def to_json(text: str) -> str:
    """JSON of the literal that ``text`` is.

    Raises:
        Malformed: it is no literal.
    """
    reader = _Reader(text)
    found = reader.value(0)
    reader.end()
    return found


def keywords(text: str) -> str:
    """JSON object of the keyword arguments that ``text`` lists, as between the brackets of a call.

    Raises:
        Malformed: there are others, or one has no value.
    """
    reader = _Reader(text)
    parts: list[str] = []
    while not reader.over():
        name = reader.take(_NAME)
        reader.expect("=")
        parts.append(f"{json.dumps(name, ensure_ascii=False)}: {reader.value(0)}")
        if not reader.accept(","):
            break
    reader.end()
    return "{" + ", ".join(parts) + "}"


class _Reader:
    """Recursive descent over one text that is there as a whole."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def over(self) -> bool:
        self._skip()
        return self._at == len(self._text)

    def end(self) -> None:
        if not self.over():
            raise Malformed

    def accept(self, char: str) -> bool:
        self._skip()
        if not self._text.startswith(char, self._at):
            return False
        self._at += len(char)
        return True

    def expect(self, char: str) -> None:
        if not self.accept(char):
            raise Malformed

    def take(self, pattern: re.Pattern[str]) -> str:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found is None:
            raise Malformed
        self._at = found.end()
        return found[0]

    def value(self, depth: int) -> str:
        if depth > MAX_DEPTH or self.over():
            raise Malformed
        char = self._text[self._at]
        if char in "'\"":
            return json.dumps(self._strings(), ensure_ascii=False)
        if char in "[(":
            return self._sequence("]" if char == "[" else ")", depth)
        if char == "{":
            return self._dict(depth)
        if char in "+-." or char.isdigit():
            return _number(self.take(_NUMBER))
        name = self.take(_NAME)
        if self._text.startswith(("(", "'", '"'), self._at):
            raise Malformed
        return WORDS.get(name) or json.dumps(name, ensure_ascii=False)

    def _sequence(self, closer: str, depth: int) -> str:
        self._at += 1
        parts: list[str] = []
        while not self.accept(closer):
            parts.append(self.value(depth + 1))
            if not self.accept(","):
                self.expect(closer)
                if closer == ")" and len(parts) == 1:
                    return parts[0]
                break
        return "[" + ", ".join(parts) + "]"

    def _dict(self, depth: int) -> str:
        self._at += 1
        parts: list[str] = []
        while not self.accept("}"):
            key = self.value(depth + 1)
            if key[0] in "[{":
                raise Malformed
            self.expect(":")
            if key[0] != '"':
                key = json.dumps(key)
            parts.append(f"{key}: {self.value(depth + 1)}")
            if not self.accept(","):
                self.expect("}")
                break
        return "{" + ", ".join(parts) + "}"

    def _strings(self) -> str:
        """One string, or several side by side, which are one."""
        parts: list[str] = []
        while not self.over() and self._text[self._at] in "'\"":
            quote = self.take(_QUOTE)
            found = _BODIES[quote].match(self._text, self._at)
            if found is None:
                raise Malformed
            self._at = found.end()
            parts.append(_ESCAPE.sub(_unescape, found[1]))
        return _joined("".join(parts))

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()


def _unescape(found: re.Match[str]) -> str:
    body = found[0][1:]
    if body in _SIMPLE:
        return _SIMPLE[body]
    if body[0] in "01234567":
        return chr(int(body, 8))
    if body[0] in "xuU" and len(body) > 1:
        code = int(body[1:], 16)
        return chr(code) if code < 0x110000 else "\ufffd"
    return found[0]


def _joined(text: str) -> str:
    """``text`` with surrogate pairs as the characters they mean, and U+FFFD for halves."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _number(text: str) -> str:
    """A number in JSON's spelling; integers keep all their digits."""
    plain = text.replace("_", "").removeprefix("+")
    if NUMBER.fullmatch(plain):
        return plain
    if plain.lstrip("-").isdigit():
        raise Malformed
    value = float(plain)
    if value in (float("inf"), float("-inf")):
        raise Malformed
    return repr(value)
