"""llama.cpp's and xgrammar's notation of grammars (``root ::= "a" [0-9]+``) into Lark, which llguidance reads.

Every character becomes a terminal of its own, so that no lexer, with its longest matches, changes the language.
"""

import re
from collections.abc import Sequence

# Nesting that no hand-written grammar has; the parser below calls itself for each level.
_MAX_DEPTH = 100

_TOKENS = re.compile(
    r"""
    (?P<skip>    \s+ | \#[^\n]* )
  | (?P<text>    "(?:[^"\\]|\\.)*" )
  | (?P<set>     \[(?:[^\]\\]|\\.)*\] )
  | (?P<define>  ::= )
  | (?P<name>    [A-Za-z_][A-Za-z0-9_-]* )
  | (?P<count>   \{\s*\d+\s*(?:,\s*\d*\s*)?\} )
  | (?P<mark>    [|()*+?.] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


class GrammarError(ValueError):
    """The text is not such a grammar; the message tells what and where."""


def looks_like(text: str) -> bool:
    """Whether ``text`` is in this notation (Lark defines rules with a single colon)."""
    return "::=" in text


def to_lark(text: str) -> str:
    """Translate the grammar ``text``, whose start rule is ``root``. Raises GrammarError."""
    start, rules = to_rules(text, "r")
    return "\n".join([f"start: {start}", *rules]) + "\n"


def to_rules(text: str, prefix: str) -> tuple[str, list[str]]:
    """As ``to_lark``, as part of a larger grammar: its start rule and its rules, all named ``prefix`` and a number."""
    parser = _Parser(_tokens(text), prefix)
    rules = parser.rules()
    if "root" not in rules:
        raise GrammarError("the grammar has no rule 'root'")
    missing = parser.used - rules.keys()
    if missing:
        raise GrammarError(f"the grammar has no rule '{min(missing)}'")
    return parser.number("root"), [f"{parser.number(name)}: {body}" for name, body in rules.items()]


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """(kind, text, line) of every token."""
    out, place, line = [], 0, 1
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise GrammarError(f"line {line} of the grammar: unexpected {text[place]!r}")
        kind = str(match.lastgroup)
        if kind != "skip":
            out.append((kind, match.group(), line))
        line += match.group().count("\n")
        place = match.end()
    return out


class _Parser:
    """Recursive descent over the tokens; ``used`` collects the rules that are referred to."""

    def __init__(self, tokens: Sequence[tuple[str, str, int]], prefix: str) -> None:
        self._tokens = tokens
        self._prefix = prefix
        self._place = 0
        self._depth = 0
        self._numbers: dict[str, int] = {}
        self.used: set[str] = set()

    def number(self, name: str) -> str:
        """The rule's name in Lark, where names have other rules than here."""
        return f"{self._prefix}{self._numbers.setdefault(name, len(self._numbers))}"

    def rules(self) -> dict[str, str]:
        out: dict[str, str] = {}
        while self._place < len(self._tokens):
            name = self._take("name", "the name of a rule")
            self._take("define", "'::='")
            if name in out:
                raise self._error(f"rule '{name}' is defined twice")
            out[name] = self._alternatives()
        return out

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._peek() == ("mark", "|"):
            self._place += 1
            branches.append(self._sequence())
        return " | ".join(branches)

    def _sequence(self) -> str:
        parts = []
        while (atom := self._atom()) is not None:
            kind, text = self._peek()
            if kind == "count" or (kind == "mark" and text in "*+?"):
                self._place += 1
                atom = f"({atom})" + re.sub(r"\s", "", text)
            parts.append(atom)
        return " ".join(parts) or '""'

    def _atom(self) -> str | None:
        """One thing that can be repeated, or None where the sequence is over."""
        kind, text = self._peek()
        if kind == "name" and self._peek(1)[0] != "define":
            self._place += 1
            self.used.add(text)
            return self.number(text)
        if kind == "text":
            self._place += 1
            characters = [_terminal(character) for character in _unescape(text[1:-1])]
            return f"({' '.join(characters)})" if characters else '""'
        if kind == "set":
            self._place += 1
            return self._set(text[1:-1])
        if (kind, text) == ("mark", "."):
            self._place += 1
            return r"/[^\n]/"
        if (kind, text) == ("mark", "("):
            return self._group()
        return None

    def _group(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"parentheses are nested more than {_MAX_DEPTH} deep")
        self._place += 1
        inner = self._alternatives()
        if self._peek() != ("mark", ")"):
            raise self._error("')' is missing")
        self._place += 1
        self._depth -= 1
        return f"({inner})"

    def _set(self, text: str) -> str:
        negated = text.startswith("^")
        # Escaped characters stand for themselves, so only a bare '-' makes a range.
        parts = re.findall(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|.", text[negated:], re.DOTALL)
        out, place = "", 0
        while place < len(parts):
            low = high = _unescape(parts[place])
            if parts[place + 1 : place + 2] == ["-"] and place + 2 < len(parts):
                high = _unescape(parts[place + 2])
                place += 2
            if low > high:
                raise self._error(f"the range {low}-{high} is empty")
            out += _code(low) if low == high else f"{_code(low)}-{_code(high)}"
            place += 1
        if not out:
            raise self._error("a character set is empty")
        return f"/[{'^' if negated else ''}{out}]/"

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._place + ahead
        return self._tokens[place][:2] if place < len(self._tokens) else ("end", "")

    def _take(self, kind: str, what: str) -> str:
        found, text = self._peek()
        if found != kind:
            raise self._error(f"expected {what}, found {text!r}" if text else f"expected {what}")
        self._place += 1
        return text

    def _error(self, message: str) -> GrammarError:
        line = self._tokens[min(self._place, len(self._tokens) - 1)][2]
        return GrammarError(f"line {line} of the grammar: {message}")


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        digits = match.group(1) or match.group(2) or match.group(3)
        if digits is None:
            return _CONTROLS.get(match.group(4), match.group(4))
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise GrammarError(f"{match.group()} is no character")
        return chr(code)

    return _ESCAPE.sub(replace, text)


def _code(character: str) -> str:
    return f"\\x{{{ord(character):X}}}"


def _terminal(character: str) -> str:
    return f"/{_code(character)}/"
