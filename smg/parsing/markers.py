"""Markers in a stream of text: where the next one is, and how much may still become one (spec parsers 3).

One compiled pattern answers both questions in a single search, so plain text costs one scan per feed. It is a trie of
all markers in which every inner node also accepts the end of the text: a match that ran into the end is a marker that
has only begun, and is the tail that must be held.
"""

import re
import sys
from functools import lru_cache
from typing import NamedTuple, TypeAlias

GAP = "\x00"  # inside a marker: optional white space
WORD = "\x01"  # inside a marker: name-like characters, maybe none

JSON_NEXT = "\x02"  # at the end of a marker: an object or an array must follow

_WILD = {GAP: r"\s{0,16}", WORD: r"[\w.:-]{0,64}", JSON_NEXT: r"(?=[{\[])"}

_WILD_CARD = re.compile(f"[{GAP}{WORD}{JSON_NEXT}]")

# A marker that no list of texts can spell: its name, whose first character is the first of all that it stands for, and
# the parts of its expression, each of which may be where the text ends for now.
Pattern: TypeAlias = tuple[str, tuple[str, ...]]


class Hit(NamedTuple):
    """A marker at ``start``; ``marker`` is None while the text ends inside it."""

    start: int
    end: int
    marker: str | None


class Markers:
    """The markers that are legal in one state of a parser. They are compiled once: get them from ``markers``."""

    def __init__(self, texts: tuple[str, ...], patterns: tuple[Pattern, ...]) -> None:
        self._open, self._closed, self._names = _compile(texts, patterns)
        # How markers begin, without wild cards: where none of these is, there is no marker.
        spelled = {_WILD_CARD.split(text, maxsplit=1)[0] for text in texts}
        self.heads = tuple(sorted(spelled | {name[0] for name, _ in patterns}))

    def find(self, text: str, start: int, final: bool = False, end: int = sys.maxsize) -> Hit | None:
        """The marker that begins first at or after ``start``, of several there the longest.

        ``final``: no more text will come, so nothing needs to be held. ``end``: the text is looked at up to here.
        """
        found = (self._closed if final else self._open).search(text, start, end)
        return None if found is None else self._hit(found)

    def match(self, text: str, start: int, final: bool = False) -> Hit | None:
        """As ``find``, but only a marker exactly at ``start``."""
        found = (self._closed if final else self._open).match(text, start)
        return None if found is None else self._hit(found)

    def _hit(self, found: re.Match[str]) -> Hit:
        index = found.lastindex
        return Hit(found.start(), found.end(), None if index is None else self._names[index - 1])


@lru_cache(maxsize=4096)
def markers(*texts: str, patterns: tuple[Pattern, ...] = ()) -> Markers:
    """``Markers`` for these spellings and patterns."""
    return Markers(texts, patterns)


class _Node:
    """One character of the trie; ``name`` is the marker that ends here."""

    __slots__ = ("children", "name")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.name: str | None = None


def _compile(
    texts: tuple[str, ...], patterns: tuple[Pattern, ...]
) -> tuple[re.Pattern[str], re.Pattern[str], tuple[str, ...]]:
    """The expression for text that goes on, the one for text that is over, and the marker of each of their groups."""
    root = _Node()
    for text in texts:
        node = root
        for char in text:
            node = node.children.setdefault(char, _Node())
        node.name = text
    names: list[str] = []
    sources = [_branch(child, char, names) for char, child in root.children.items()]
    for name, parts in patterns:
        sources.append(_sequence(parts))
        names.append(name)
    # END stands for "the text ends here", which only the first expression may accept.
    source = "|".join(sources) if sources else "(?!)"
    return re.compile(source.replace("END|", r"\Z|")), re.compile(source.replace("END|", "")), tuple(names)


def _branch(node: _Node, char: str, names: list[str]) -> str:
    """Expression of ``node`` and everything below; an empty group says which marker was complete."""
    rest = [_branch(child, char, names) for char, child in sorted(node.children.items(), reverse=True)]
    if node.name is not None:
        names.append(node.name)
        rest.append("()")
    else:
        rest.append("(?!)")
    end = "END|" if node.children else ""
    head = "|".join(rest[:-1])
    return f"{_WILD.get(char) or re.escape(char)}(?:{head}{'|' if head else ''}{end}{rest[-1]})"


def _sequence(parts: tuple[str, ...]) -> str:
    if not parts:
        return "()"
    inner = _sequence(parts[1:])
    return f"{parts[0]}(?:{'END|' if len(parts) > 1 else ''}{inner})"
