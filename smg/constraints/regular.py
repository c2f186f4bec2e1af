"""Regular expressions as they stand in grammars, read into a ``Node`` (``constraints.language``).

What a grammar of characters can't say (looking ahead or behind, references back, borders of words) is refused.
"""

from smg.constraints.language import LAST, NOTHING, Chars, Either, LanguageError, Node, Repeat, Row, Text, chars

MAX_DEPTH = 64  # of nested groups
MAX_REPEAT = 1000  # of a part with a number

# How often a part comes that one of these follows.
SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

_DIGITS = ((0x30, 0x39),)
_WORDS = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES = ((0x09, 0x0D), (0x20, 0x20))
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0", "a": "\a"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


def parse(pattern: str, flags: str = "") -> Node:
    """The language of ``pattern``. Of flags, ``i`` (letters of either case) and ``s`` (a dot is any character) count.

    Raises:
        LanguageError: it is no regular expression, or one of those named above.
    """
    if set(flags) - set("isumx") or "x" in flags or "m" in flags:
        raise LanguageError(f"the flags '{flags}' of a regular expression are not supported")
    parser = _Parser(pattern, "i" in flags, "s" in flags)
    node = parser.alternatives()
    if not parser.over:
        raise parser.error("unexpected ')'")
    return node


class _Parser:
    """Recursive descent over the pattern's characters."""

    def __init__(self, pattern: str, folded: bool, dotall: bool) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._folded = folded
        self._dot = chars(() if dotall else ((0x0A, 0x0A),), negated=True)

    @property
    def over(self) -> bool:
        return self._at == len(self._text)

    def error(self, what: str) -> LanguageError:
        return LanguageError(f"regular expression, character {self._at}: {what}")

    def alternatives(self) -> Node:
        parts = [self._row()]
        while self._take("|"):
            parts.append(self._row())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _row(self) -> Node:
        parts: list[Node] = []
        while not self.over and self._text[self._at] not in "|)":
            parts.append(self._quantified(self._atom()))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _quantified(self, node: Node) -> Node:
        mark = self._text[self._at : self._at + 1]
        bounds = SIGNS.get(mark) if mark else None
        if bounds is not None:
            self._at += 1
        else:
            bounds = self._bounds()
        if bounds is None:
            return node
        # Lazy or possessive: the language is the same.
        if not self._take("?"):
            self._take("+")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None
        least, most = int(low[:9]), (int(high[:9]) if high else None) if comma else int(low[:9])
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise self.error(f"a part can be repeated up to {MAX_REPEAT} times")
        self._at = end + 1
        return least, most

    def _atom(self) -> Node:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._set()
            case ".":
                return self._dot
            case "\\":
                return self._escape()
            case "^" if self._at == 1:
                return NOTHING
            case "$" if self.over:
                return NOTHING
            case "^" | "$":
                raise self.error("'^' and '$' are only supported at the beginning and the end")
            case "*" | "+" | "?":
                raise self.error(f"'{char}' has nothing to repeat")
        return self._literal(char)

    def _literal(self, char: str) -> Node:
        if self._folded and char.lower() != char.upper():
            return chars((ord(each), ord(each)) for each in {char.lower(), char.upper()} if len(each) == 1)
        return Text(char)

    def _group(self) -> Node:
        if self._take("?"):
            if self._take("P<") or (
                self._text.startswith("<", self._at) and self._text[self._at + 1 : self._at + 2] not in "=!"
            ):
                end = self._text.find(">", self._at)
                if end < 0:
                    raise self.error("a group's name has no end")
                self._at = end + 1
            elif not self._take(":"):
                raise self.error("only plain, named and non-capturing groups are supported")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error("groups are nested too deeply")
        node = self.alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise self.error("a group has no end")
        return node

    def _escape(self) -> Node:
        char = self._next()
        if char.lower() in _CLASSES:
            return chars(_CLASSES[char.lower()], negated=char.isupper())
        return self._literal(chr(self._code(char)))

    def _code(self, char: str) -> int:
        """The code point that an escape stands for; ``char`` is behind the backslash."""
        if char in _CONTROLS:
            return ord(_CONTROLS[char])
        if char in _HEX_DIGITS:
            digits = self._text[self._at : self._at + _HEX_DIGITS[char]]
            self._at += len(digits)
            try:
                code = int(digits, 16)
            except ValueError:
                raise self.error("a character by number needs hexadecimal digits") from None
            if code > LAST or 0xD800 <= code <= 0xDFFF:
                raise self.error("there is no such character")
            return code
        if char.isascii() and char.isalnum():
            raise self.error(f"'\\{char}' is not supported")
        return ord(char)

    def _set(self) -> Chars:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._text.startswith("]", self._at):
            first = False
            ranges += self._member()
        self._at += 1
        if self._folded:
            ranges += [pair for low, high in ranges for pair in _other_case(low, high)]
        return chars(ranges, negated=negated)

    def _member(self) -> tuple[tuple[int, int], ...]:
        char = self._next()
        if char == "\\":
            char = self._next()
            if char in _CLASSES:
                return _CLASSES[char]
            if char.lower() in _CLASSES:
                return chars(_CLASSES[char.lower()], negated=True).ranges
            low = 8 if char == "b" else self._code(char)
        else:
            low = ord(char)
        if not self._text.startswith("-", self._at) or self._text[self._at + 1 : self._at + 2] == "]":
            return ((low, low),)
        self._at += 1
        char = self._next()
        high = self._code(self._next()) if char == "\\" else ord(char)
        if high < low:
            raise self.error("a range of characters ends before it begins")
        return ((low, high),)

    def _next(self) -> str:
        if self.over:
            raise self.error("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True


def _other_case(low: int, high: int) -> list[tuple[int, int]]:
    """The other case of the ASCII letters in a range."""
    out = []
    for begin, end, shift in ((0x41, 0x5A, 0x20), (0x61, 0x7A, -0x20)):
        first, last = max(low, begin), min(high, end)
        if first <= last:
            out.append((first + shift, last + shift))
    return out
