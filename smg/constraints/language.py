"""Languages as trees: what grammars of custom tools are read into, and what engines' EBNF is written from.

The tree is about characters only, so that a language can be written as it is, or as it stands inside a JSON string.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
# What has a short escape in JSON. Other control characters are left out of sets: no text that a tool is given has them.
_ESCAPED = '"\\\b\f\n\r\t'
_SPECIAL = frozenset(map(ord, _ESCAPED)) | frozenset(range(0x20))


class LanguageError(ValueError):
    """Not a grammar that can be read; the message is for the client."""


class Text(msgspec.Struct, frozen=True):
    """Exactly this text, which may be empty."""

    text: str


class Chars(msgspec.Struct, frozen=True):
    """One character of these ranges of code points, which are in order and apart."""

    ranges: tuple[tuple[int, int], ...]


class Row(msgspec.Struct, frozen=True):
    """The parts one after the other."""

    parts: "tuple[Node, ...]"


class Either(msgspec.Struct, frozen=True):
    """One of the parts."""

    parts: "tuple[Node, ...]"


class Repeat(msgspec.Struct, frozen=True):
    """``part`` from ``least`` to ``most`` times; None: as often as one likes."""

    part: "Node"
    least: int
    most: int | None


class Name(msgspec.Struct, frozen=True):
    """What the rule of this name says."""

    name: str


Node: TypeAlias = Text | Chars | Row | Either | Repeat | Name
NOTHING = Text("")


class Language(msgspec.Struct, frozen=True):
    """Rules by name; the language is that of ``start``."""

    rules: Mapping[str, Node]
    start: str = "start"


def chars(ranges: Iterable[tuple[int, int]], *, negated: bool = False) -> Chars:
    """The set of ``ranges`` or, negated, of all other characters."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    if not negated:
        return Chars(tuple(merged))
    out, at = [], 0
    for low, high in [*sorted([*merged, _SURROGATES]), (LAST + 1, LAST + 1)]:
        if at < low:
            out.append((at, low - 1))
        at = max(at, high + 1)
    return Chars(tuple(out))


def in_json(node: Node) -> Node:
    """``node`` as its text stands between the quotes of a JSON string."""
    match node:
        case Text(text=text):
            return Text(json.dumps(text, ensure_ascii=False)[1:-1])
        case Chars():
            return _set_in_json(node)
        case Row(parts=parts):
            return Row(tuple(map(in_json, parts)))
        case Either(parts=parts):
            return Either(tuple(map(in_json, parts)))
        case Repeat(part=part):
            return msgspec.structs.replace(node, part=in_json(part))
    return node


def _set_in_json(node: Chars) -> Node:
    escaped = tuple(in_json(Text(char)) for char in _ESCAPED if any(a <= ord(char) <= b for a, b in node.ranges))
    plain: list[tuple[int, int]] = []
    for low, high in node.ranges:
        at = low
        for special in sorted(code for code in _SPECIAL if low <= code <= high):
            if at < special:
                plain.append((at, special - 1))
            at = special + 1
        if at <= high:
            plain.append((at, high))
    parts = ((Chars(tuple(plain)),) if plain else ()) + escaped
    return parts[0] if len(parts) == 1 else Either(parts)


def ends(language: Language) -> bool:
    """Whether any text at all is in the language: a rule that always needs itself has none."""
    known: set[str] = set()
    size = -1
    while size != len(known):
        size = len(known)
        known |= {name for name, node in language.rules.items() if _ends(node, known)}
    return language.start in known


def _ends(node: Node, known: set[str]) -> bool:
    match node:
        case Name(name=name):
            return name in known
        case Row(parts=parts):
            return all(_ends(part, known) for part in parts)
        case Either(parts=parts):
            return any(_ends(part, known) for part in parts)
        case Repeat(part=part, least=least):
            return least == 0 or _ends(part, known)
        case Chars(ranges=ranges):
            return bool(ranges)
    return True


def ebnf(language: Language, *, json_string: bool = False, before: str = "", after: str = "") -> str:
    """``language`` in the EBNF that engines read (``root ::= …``), as it is or as the inside of a JSON string.

    ``before`` and ``after`` are texts around it.
    """
    around = [_write(Text(before)) if before else "", _rule(language.start), _write(Text(after)) if after else ""]
    lines = [f"root ::= {' '.join(filter(None, around))}"]
    for name, node in language.rules.items():
        lines.append(f"{_rule(name)} ::= {_write(in_json(node) if json_string else node)}")
    return "\n".join(lines) + "\n"


def _rule(name: str) -> str:
    # A grammar may have a rule called root itself.
    return f"l_{name}"


def _write(node: Node) -> str:
    match node:
        case Text(text=text):
            return '"' + "".join(map(_char_in_text, text)) + '"'
        case Chars(ranges=ranges):
            return "[" + "".join(_range(low, high) for low, high in ranges) + "]"
        case Row(parts=parts):
            return "(" + " ".join(map(_write, parts)) + ")" if parts else '""'
        case Either(parts=parts):
            return "(" + " | ".join(map(_write, parts)) + ")"
        case Name(name=name):
            return _rule(name)
        case Repeat(part=part, least=least, most=most):
            return f"({_write(part)}){_count(least, most)}"


def _count(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    if short is not None:
        return short
    return f"{{{least},{'' if most is None else most}}}"


def _range(low: int, high: int) -> str:
    return _char_in_set(low) if low == high else f"{_char_in_set(low)}-{_char_in_set(high)}"


def _char_in_text(char: str) -> str:
    return f"\\{char}" if char in '"\\' else _shown(ord(char))


def _char_in_set(code: int) -> str:
    return f"\\{chr(code)}" if chr(code) in "]\\-^[" else _shown(code)


def _shown(code: int) -> str:
    """A character that is no control character as it is; others by number."""
    if 0x20 <= code < 0x7F:
        return chr(code)
    return f"\\x{code:02X}" if code < 0x80 else f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"
