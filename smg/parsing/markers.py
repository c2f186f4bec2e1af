"""Markers in a stream of text: where the next one is, and how much may still become one (spec parsers 3).

One compiled pattern answers both questions in a single search, so plain text costs one scan per feed. It is a trie of
all markers in which every inner node also accepts the end of the text: a match that ran into the end is a marker that
has only begun, and is the tail that must be held.
"""

import re
import sys
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec

from smg.core.stream import SEAL

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
    """The markers that are legal in one state of a parser. They are compiled once: get them from ``markers``.

    ``texts`` are their spellings, as they come, and their names.
    """

    def __init__(self, texts: tuple[tuple[str, str], ...], patterns: tuple[Pattern, ...]) -> None:
        self._open, self._closed, self._names = _compile(texts, patterns)
        # How markers begin, without wild cards: where none of these is, there is no marker.
        spelled = {SEAL if text[0] == SEAL else _WILD_CARD.split(text, maxsplit=1)[0] for text, _ in texts}
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
    return Markers(tuple((text, text) for text in texts), patterns)


class Seals(msgspec.Struct, frozen=True):
    """The ``texts`` that count as markers, or as parts of such, only when a token of their own brings them.

    The row then puts ``SEAL`` in front of them (``core.stream.Marker``), so in the text that parsers read a marker with
    a seal is one, and the same characters without it are what the model says.
    """

    texts: frozenset[str] = frozenset()

    def put(self, text: str) -> str:
        """``text`` as a row would give it, if every text of ``texts`` in it were its token."""
        return _sealing(self).sub(SEAL + r"\g<0>", text) if self.texts else text

    def off(self, text: str) -> str:
        """``text`` as the client reads it."""
        return text.replace(SEAL, "") if self.texts else text

    def markers(self, *texts: str, patterns: tuple[Pattern, ...] = ()) -> Markers:
        """``Markers`` for these spellings and patterns. Hits have the names without seals; patterns have none."""
        return _sealed(self, texts, patterns) if self.texts else markers(*texts, patterns=patterns)


UNSEALED = Seals()


@lru_cache(maxsize=256)
def _sealing(seals: Seals) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text) for text in sorted(seals.texts, key=len, reverse=True)))


@lru_cache(maxsize=4096)
def _sealed(seals: Seals, texts: tuple[str, ...], patterns: tuple[Pattern, ...]) -> Markers:
    return Markers(tuple((_spelling(seals, text), text) for text in texts), patterns)


def _spelling(seals: Seals, text: str) -> str:
    """``text`` as a row gives it. One with a wild card stands for all tokens that it can spell."""
    if WORD in text:
        spelled = re.compile("".join(_WILD.get(char) or re.escape(char) for char in text))
        if any(spelled.fullmatch(one) for one in seals.texts):
            return SEAL + text
    return seals.put(text)


class _Node:
    """One character of the trie; ``name`` is the marker that ends here."""

    __slots__ = ("children", "name")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.name: str | None = None


def _compile(
    texts: tuple[tuple[str, str], ...], patterns: tuple[Pattern, ...]
) -> tuple[re.Pattern[str], re.Pattern[str], tuple[str, ...]]:
    """The expression for text that goes on, the one for text that is over, and the marker of each of their groups."""
    root = _Node()
    for text, name in texts:
        node = root
        for char in text:
            node = node.children.setdefault(char, _Node())
        node.name = name
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
