"""NFC of a text in slices: each call into Python's normaliser holds the GIL for as long as its text takes."""

import unicodedata
from collections.abc import Callable, Iterator

# Characters of a slice, about 0.1 ms; and of the run of characters that combine which may lengthen it. Python sorts
# such runs in quadratic time.
SLICE = 2048
LONGEST_RUN = 1024


class Tangled(Exception):
    """The text has a run of characters that combine which is too long to be sorted here."""


def nfc(text: str, settled: Callable[[str], bool]) -> str:
    """Return ``text`` in Unicode normal form C.

    ``settled`` tells of a character that it never changes, nor combines with one before it: there a text may be cut.

    Raises:
        Tangled: there is no such character for too long.
    """
    if len(text) <= SLICE:
        return unicodedata.normalize("NFC", text)
    return "".join(unicodedata.normalize("NFC", piece) for piece in _slices(text, settled))


def _slices(text: str, settled: Callable[[str], bool]) -> Iterator[str]:
    start = 0
    while len(text) - start > SLICE:
        end = start + SLICE
        while end < len(text) and not settled(text[end]):
            end += 1
            if end - start > SLICE + LONGEST_RUN:
                raise Tangled
        yield text[start:end]
        start = end
    yield text[start:]
