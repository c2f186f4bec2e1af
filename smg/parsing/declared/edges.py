"""Where the next edge of a declared field is, and how much may still become one.

Literals are searched as other markers are. Regular expressions come with the checkpoint: they are those of the package
``regex``, which can say that a match has begun, and which gives up when one takes too long.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from smg.parsing.declared.template import Edge, Template, TemplateError
from smg.parsing.markers import Seals

MAX_HELD = 64 << 10  # characters that a regular expression may hold before it must have matched
MAX_SECS = 0.05  # of one search

_LINES = ("", "\n", "\n\n")
_META = frozenset(".^$*+?{}[]()|\\")


class Found(NamedTuple):
    """An edge at ``start``; ``edge`` is None while the text ends inside it. ``groups`` are what a pattern has named."""

    start: int
    end: int
    edge: Edge | None
    groups: Mapping[str, str]


class Edges:
    """The edges that count in one state. ``lines``: up to two line ends in front of a literal belong to it.

    ``heads`` are how they begin; None when that cannot be told.
    """

    def __init__(self, edges: Iterable[Edge], seals: Seals, *, lines: bool = False) -> None:
        given = tuple(edges)
        self._lines = lines
        self._owners = {
            line + text: edge
            for edge in reversed(given)
            for text in edge.literals
            for line in (_LINES if lines else _LINES[:1])
        }
        self._literals = seals.markers(*self._owners)
        self._patterns = [(edge, compiled(edge.pattern)) for edge in given if edge.pattern]
        heads = [head_of(edge.pattern) for edge, _ in self._patterns]
        self.heads = (*self._literals.heads, *heads) if all(heads) else None

    def trimmed(self, text: str) -> str:
        """``text``, which was held in the end, without line ends that belong to what could have followed."""
        return text.removesuffix("\n").removesuffix("\n") if self._lines else text

    def find(self, text: str, at: int, final: bool) -> Found | None:
        """The first edge at or behind ``at``, of several there the longest; None when there is none.

        Raises:
            TimeoutError: a regular expression takes too long.
        """
        best: Found | None = None
        begun = len(text)
        hit = self._literals.find(text, at, final)
        if hit is not None and hit.marker is None:
            begun = hit.start
        elif hit is not None and hit.marker is not None:
            best = Found(hit.start, hit.end, self._owners[hit.marker], {})
        for edge, pattern in self._patterns:
            match = pattern.search(text, at, partial=not final, timeout=MAX_SECS)
            if match is not None and not final and len(text) - match.start() > MAX_HELD and _open(pattern, match, text):
                match = pattern.search(text, at, timeout=MAX_SECS)
            if match is None or (match.start() == match.end() and not match.partial):
                continue
            if not final and _open(pattern, match, text):
                begun = min(begun, match.start())
            elif best is None or (match.start(), -match.end()) < (best.start, -best.end):
                groups = {name: value for name, value in match.groupdict().items() if value is not None}
                best = Found(match.start(), match.end(), edge, groups)
        if best is not None and best.start < begun:
            return best
        return Found(begun, len(text), None, {}) if begun < len(text) else None


def _open(pattern: Any, match: Any, text: str) -> bool:
    """Whether more text could change the match: it reaches the end, or looks at it."""
    if match.partial or match.end() == len(text):
        return True
    longer = pattern.match(text + "\x00", match.start(), timeout=MAX_SECS)
    return longer is None or longer.span() != match.span() or longer.groups() != match.groups()


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """The expression, as the package ``regex`` compiles it.

    Raises:
        TemplateError: it is none, or the package is not installed.
    """
    try:
        regex = import_module("regex")
    except ImportError:
        raise TemplateError("patterns need the package regex: pip install 'smg-server[hf]'") from None
    try:
        return regex.compile(pattern, regex.DOTALL)
    except (regex.error, ValueError) as error:
        raise TemplateError(f"{pattern!r} is no regular expression: {error}") from None


def check(template: Template) -> None:
    """Compile all expressions of ``template``. Raises TemplateError."""
    for edge in (*template.edges, template.anchor):
        if edge.pattern:
            compiled(edge.pattern)
    for field in template.fields:
        if field.content == "xml-inline" and not {"key", "value"} <= set(
            compiled(field.args["tag_pattern"]).groupindex
        ):
            raise TemplateError(f"response_template.fields.{field.name}: tag_pattern names no key and value")


def head_of(pattern: str) -> str:
    """The text that every match of ``pattern`` begins with, as far as it is spelled out; "" when it is not."""
    if _forks(pattern):
        return ""
    head, at = "", 0
    while at < len(pattern):
        size = 2 if pattern[at] == "\\" and not pattern[at + 1 : at + 2].isalnum() else 1
        char = pattern[at + size - 1 : at + size]
        if not char or (size == 1 and char in _META) or pattern[at + size : at + size + 1] in ("*", "?", "{", "+"):
            break
        head += char
        at += size
    return head


def _forks(pattern: str) -> bool:
    """Whether there are alternatives outside of all brackets."""
    depth, escaped = 0, False
    for char in pattern:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "|" and depth <= 0:
            return True
    return False


def begun(template: Template, prompt_tail: str) -> str:
    """What the prompt has of the message already: its end, behind the last anchor."""
    anchor = template.anchor
    if anchor.pattern:
        ends = [match.end() for match in compiled(anchor.pattern).finditer(prompt_tail, timeout=MAX_SECS)]
        return prompt_tail[ends[-1] :] if ends else ""
    place, text = max((prompt_tail.rfind(text), text) for text in anchor.literals)
    return "" if place < 0 else prompt_tail[place + len(text) :]
