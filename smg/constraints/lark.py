"""Grammars in Lark's notation, as OpenAI's custom tools have them, read into a ``Language``.

Rules and terminals are read alike: which texts are in the language does not depend on how a lexer would cut them.
Templates, and imports of anything but Lark's own ``common`` terminals, are refused.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from smg.constraints import regular
from smg.constraints.language import (
    Either,
    Language,
    LanguageError,
    Name,
    Node,
    Repeat,
    Row,
    Text,
    chars,
    ends,
)

MAX_DEPTH = 64  # of nested groups
MAX_REPEAT = regular.MAX_REPEAT

_TOKENS = re.compile(
    r"""
    (?P<skip>   [ \t\f]+ | //[^\n]* | \#[^\n]* )
  | (?P<line>   (?:\r?\n[ \t]*)+ )
  | (?P<regex>  /(?!/)(?:\\.|[^/\\\n])+/[a-z]* )
  | (?P<text>   "(?:\\.|[^"\\\n])*"i? )
  | (?P<command> %[a-z]+ )
  | (?P<name>   [?!]{0,2}_{0,2}[a-zA-Z][_a-zA-Z0-9]* )
  | (?P<number> -?\d+ )
  | (?P<mark>   \.\. | -> | [:|()\[\]?*+~.,{}] )
    """,
    re.VERBOSE,
)
_ESCAPES = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_IGNORED = "0ignored"

_INT, _DECIMAL = r"[0-9]+", r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT = rf"(?:{_INT}[eE][+-]?{_INT}|{_DECIMAL}(?:[eE][+-]?{_INT})?)"
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": _INT,
    "SIGNED_INT": rf"[+-]?{_INT}",
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": rf"[+-]?{_FLOAT}",
    "NUMBER": rf"(?:{_FLOAT}|{_INT})",
    "SIGNED_NUMBER": rf"[+-]?(?:{_FLOAT}|{_INT})",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str) -> Language:
    """Read a grammar whose start rule is ``start``.

    Raises:
        LanguageError: it is none, or uses what is named above; the message names the line.
    """
    reader = _Reader(list(_tokens(text)))
    reader.read()
    rules = reader.rules
    if "start" not in rules:
        raise LanguageError("the grammar has no rule 'start'")
    for name, line in reader.used.items():
        if name not in rules:
            raise LanguageError(f"line {line} of the grammar: there is no rule or terminal '{name}'")
    language = Language(_with_ignored(rules, reader.ignored))
    if not ends(language):
        raise LanguageError("the grammar can never end: no text satisfies it")
    return language


def _tokens(text: str) -> Iterator[_Token]:
    place, line = 0, 1
    held: _Token | None = None
    while place < len(text):
        found = _TOKENS.match(text, place)
        if found is None:
            raise LanguageError(f"line {line} of the grammar: unexpected {text[place]!r}")
        token = _Token(str(found.lastgroup), found[0], line)
        line += found[0].count("\n")
        place = found.end()
        if token.kind == "skip":
            continue
        # A line that begins with a bar goes on with the one before.
        if held is not None and token.text != "|":
            yield held
        held = token if token.kind == "line" else None
        if held is None:
            yield token


class _Reader:
    """Recursive descent over the tokens; ``used`` are the names that are referred to, with their lines."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = [*tokens, _Token("line", "\n", tokens[-1].line if tokens else 1), _Token("end", "", 0)]
        self._at = 0
        self._depth = 0
        self._in_rule = False
        self._ignores = any(token.text == "%ignore" for token in tokens)
        self.rules: dict[str, Node] = {}
        self.ignored: list[Node] = []
        self.used: dict[str, int] = {}

    def read(self) -> None:
        while self._now.kind != "end":
            if self._now.kind == "line":
                self._at += 1
            elif self._now.kind == "command":
                self._command(self._take().text)
            else:
                self._definition()

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _error(self, what: str) -> LanguageError:
        return LanguageError(f"line {self._now.line or self._tokens[self._at - 1].line} of the grammar: {what}")

    def _take(self, kind: str = "", text: str = "") -> _Token:
        token = self._now
        if (kind and token.kind != kind) or (text and token.text != text):
            raise self._error(f"expected {text or kind}, found {token.text.strip() or 'the end of the line'!r}")
        self._at += 1
        return token

    def _if(self, text: str) -> bool:
        if self._now.kind != "mark" or self._now.text != text:
            return False
        self._at += 1
        return True

    def _definition(self) -> None:
        name = self._take("name").text.lstrip("?!")
        if self._now.text == "{":
            raise self._error("templates are not supported")
        if self._if("."):
            self._take("number")
        self._take("mark", ":")
        if name in self.rules:
            raise self._error(f"'{name}' is defined twice")
        self._in_rule = not _is_terminal(name)
        self.rules[name] = self._alternatives()
        self._take("line")

    def _command(self, command: str) -> None:
        if command == "%ignore":
            self._in_rule = False
            self.ignored.append(self._alternatives())
        elif command == "%import":
            self._import()
        else:
            raise self._error(f"{command} is not supported")
        self._take("line")

    def _import(self) -> None:
        module = self._take("name").text
        if module != "common":
            raise self._error("only 'common' can be imported from")
        if self._if("."):
            name = self._take("name").text
            self._common(name, self._take("name").text if self._if("->") else name)
            return
        self._take("mark", "(")
        while True:
            name = self._take("name").text
            self._common(name, name)
            if not self._if(","):
                break
        self._take("mark", ")")

    def _common(self, name: str, alias: str) -> None:
        if name not in _COMMON:
            raise self._error(f"there is no terminal common.{name}")
        self.rules[alias] = regular.parse(_COMMON[name])

    def _alternatives(self) -> Node:
        parts = [self._row()]
        while self._if("|"):
            parts.append(self._row())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _row(self) -> Node:
        parts: list[Node] = []
        while self._now.kind in ("name", "text", "regex") or (self._now.kind == "mark" and self._now.text in "(["):
            parts.append(self._counted(self._atom()))
        if self._if("->"):
            self._take("name")
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _counted(self, node: Node) -> Node:
        if self._now.kind == "mark" and self._now.text in regular.SIGNS:
            return Repeat(node, *regular.SIGNS[self._take().text])
        if not self._if("~"):
            return node
        low = int(self._take("number").text[:9])
        high = int(self._take("number").text[:9]) if self._if("..") else low
        if not 0 <= low <= high <= MAX_REPEAT:
            raise self._error(f"a part can be repeated up to {MAX_REPEAT} times")
        return Repeat(node, low, high)

    def _atom(self) -> Node:
        token = self._take()
        match token.kind:
            case "name":
                name = token.text.lstrip("?!")
                self.used.setdefault(name, token.line)
                return self._terminal(Name(name)) if _is_terminal(name) else Name(name)
            case "regex":
                pattern, _, flags = token.text[1:].rpartition("/")
                return self._terminal(regular.parse(pattern.replace("\\/", "/"), flags))
            case "text":
                return self._terminal(self._text(token))
        return self._group(token.text)

    def _text(self, token: _Token) -> Node:
        text, folded = _unquoted(token.text)
        if not self._if(".."):
            return regular.parse(re.escape(text), "i") if folded else Text(text)
        last, _ = _unquoted(self._take("text").text)
        if len(text) != 1 or len(last) != 1 or last < text:
            raise self._error("a range goes from one character to a later one")
        return chars([(ord(text), ord(last))])

    def _group(self, opener: str) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("groups are nested too deeply")
        node = self._alternatives()
        self._depth -= 1
        self._take("mark", ")" if opener == "(" else "]")
        return node if opener == "(" else Repeat(node, 0, 1)

    def _terminal(self, node: Node) -> Node:
        """In a rule, what is ignored may follow every terminal."""
        return Row((node, Name(_IGNORED))) if self._in_rule and self._ignores else node


def _with_ignored(rules: dict[str, Node], ignored: list[Node]) -> dict[str, Node]:
    if not ignored:
        return rules
    start = Row((Name(_IGNORED), rules["start"]))
    return {**rules, "start": start, _IGNORED: Repeat(Either(tuple(ignored)), 0, None)}


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def _unquoted(token: str) -> tuple[str, bool]:
    """What a text in quotes stands for, and whether its case does not matter."""
    folded = token.endswith("i")

    def char(found: re.Match[str]) -> str:
        number = found[1] or found[2] or found[3]
        if not number:
            return _CONTROLS.get(found[4], found[4])
        code = int(number, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise LanguageError(f"there is no character {found[0]}")
        return chr(code)

    return _ESCAPES.sub(char, token[1 : -2 if folded else -1]), folded
