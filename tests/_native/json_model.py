"""``_native.json_scan`` in plain Python: the units it takes, written as expressions."""

import re

_BLANK = re.compile(r"[ \t\n\r]+")
_COMMA = re.compile(r",[ \t\n\r]*")
_SCALAR = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)(?=[ \t\n\r,\]}])")
_LONG = re.compile(r"[0-9A-Za-z+.-]+\Z")
_TEXT = re.compile(r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})*')
_ESCAPE_BEGUN = re.compile(r"\\(?:u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{0,2}|[dD](?:[0-7][0-9a-fA-F]?)?)?)?\Z")

MAX_DEPTH = 128
MAX_UNIT = 256


class JsonModel:
    """The same state and the same ``run`` as ``JsonScan``."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.due = "value"
        self.in_string = False
        self.stuck = False

    @property
    def depth(self) -> int:
        return len(self.open)

    def run(self, text: str, at: int = 0) -> int:
        self.stuck = False
        while at < len(text) and (end := self._next(text, at)) > at:
            at = end
        self.stuck = self.stuck or len(text) - at > MAX_UNIT
        return at

    def _next(self, text: str, at: int) -> int:
        if self.in_string:
            return self._string(text, at)
        if found := _BLANK.match(text, at):
            return found.end()
        key = self.due in ("first", "again") and self.open[-1:] == ["{"]
        value = self.due in ("value", "first", "again") and not key
        char = text[at]
        if char == '"' and self.open and (key or value):
            self.due, self.in_string = ("colon" if key else "comma"), True
            return at + 1
        if char in "{[" and value and self.depth < MAX_DEPTH:
            self.open.append(char)
            self.due = "first"
            return at + 1
        if char in "}]" and self.depth > 1 and self.due in ("first", "comma") and self.open[-1] + char in ("{}", "[]"):
            self.open.pop()
            self.due = "comma"
            return at + 1
        if char == ":" and self.due == "colon":
            self.due = "value"
            return at + 1
        if char == "," and self.due == "comma" and self.open:
            return self._comma(text, at)
        if (char in "-0123456789tfn") and value and self.open:
            return self._scalar(text, at)
        self.stuck = True
        return at

    def _string(self, text: str, at: int) -> int:
        found = _TEXT.match(text, at)
        if found.end() > at:
            return found.end()
        if text[at] == '"' and self.open:
            self.in_string = False
            return at + 1
        self.stuck = _ESCAPE_BEGUN.match(text, at) is None
        return at

    def _comma(self, text: str, at: int) -> int:
        end = _COMMA.match(text, at).end()
        if end == len(text):
            return at
        if text[end] in ('"' if self.open[-1] == "{" else '"{[-0123456789tfn'):
            self.due = "again"
            return end
        self.stuck = True
        return at

    def _scalar(self, text: str, at: int) -> int:
        if found := _SCALAR.match(text, at):
            self.due = "comma"
            return found.end()
        self.stuck = _LONG.match(text, at) is None
        return at
