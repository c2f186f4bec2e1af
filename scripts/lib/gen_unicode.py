"""Write the table of Unicode classes from what the tokenizers library itself matches.

Usage: scripts/gen-unicode [--check]
Asks the library's regular expressions for the class of every code point and writes smg/text/bpe/unicode_runs.py.
--check only compares, and exits with 1 when the file is not what the library says. Run it with the oldest supported
Python: what that one does not know yet, another may.
"""

import sys
import unicodedata
from itertools import groupby
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

TARGET = Path(__file__).resolve().parents[2] / "smg" / "text" / "bpe" / "unicode_runs.py"
LIMIT = 0x110000

# Numbers as in smg/_native/word_split.pxd.
CLASSES = {
    1: r"[\p{Lu}\p{Lt}]",
    2: r"\p{Ll}",
    3: r"[\p{Lm}\p{Lo}]",
    4: r"\p{M}",
    5: r"\p{N}",
    6: r"\s",
    7: r"\p{P}",
    8: r"\p{S}",
}
NFC_CHECK, FOLDS, RECENT, HAN = 0x10, 0x20, 0x40, 0x80


def matched(pattern: str, chars: list[str]) -> set[str]:
    """The characters that ``pattern`` matches alone."""
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    # NUL stands between all of them and is in no class: a piece of one character is a match, or NUL.
    pieces = splitter.pre_tokenize_str("\0".join(["", *chars, ""]))
    return {piece for piece, _ in pieces if len(piece) == 1} - {"\0"}


def pairs() -> list[str]:
    """Two characters each that Python's Unicode version composes: the canonical decompositions."""
    found = (unicodedata.decomposition(chr(code)).split() for code in range(LIMIT))
    return [
        "".join(chr(int(part, 16)) for part in parts)
        for parts in found
        if len(parts) == 2 and not parts[0].startswith("<")
    ]


def differ(text: str) -> bool:
    """Whether the library's tables of normal forms, which are older than those of its classes, and Python's differ."""
    return bool(normalizers.NFC().normalize_str(text) != unicodedata.normalize("NFC", text))


def is_recent(char: str) -> bool:
    """Whether the library and some supported Python may put ``char`` into different normal forms.

    A mark that only one of them knows does not change places with marks that stand further in or out (U+0334, U+0345).
    """
    never = ord(char) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF
    unassigned = unicodedata.category(char) == "Cn" and not never
    return unassigned or differ(char) or differ(char + "\u0334") or differ("\u0345" + char)


def flags_of(char: str, seconds: set[str]) -> int:
    flags = 0
    moves = unicodedata.combining(char) or char in seconds or 0x1100 <= ord(char) <= 0x11FF
    if moves or normalizers.NFC().normalize_str(char) != char:
        flags |= NFC_CHECK
    if char == "\u017f":
        flags |= FOLDS
    if is_recent(char):
        flags |= RECENT
    return flags


def table() -> bytes:
    chars = [chr(code) for code in range(1, LIMIT) if not 0xD800 <= code <= 0xDFFF]
    out = bytearray(LIMIT)
    for number, pattern in CLASSES.items():
        for char in matched(pattern, chars):
            if out[ord(char)]:
                raise SystemExit(f"U+{ord(char):04X} is in two classes")
            out[ord(char)] = number
    composed = pairs()
    # A character before them may swallow these.
    seconds = {pair[1] for pair in composed}
    for char in chars:
        out[ord(char)] |= flags_of(char, seconds)
    for pair in filter(differ, composed):
        out[ord(pair[1])] |= RECENT
    for char in matched(r"\p{Han}", chars):
        out[ord(char)] |= HAN
    return bytes(out)


def source(data: bytes) -> str:
    """Runs as ``value.length`` in hexadecimal."""
    runs = [f"{value:x}.{len(list(group)):x} " for value, group in groupby(data)]
    lines = [""]
    for run in runs:
        if len(lines[-1]) + len(run) > 112:
            lines.append("")
        lines[-1] += run
    body = "\n".join(f'    "{text}"' for text in lines)
    return (
        '"""Class and flags of every code point, in runs (written by scripts/gen-unicode; see word_split.pxd)."""\n\n'
        f"RUNS = (\n{body}\n)\n"
    )


def main() -> int:
    text = source(table())
    if "--check" in sys.argv[1:]:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
