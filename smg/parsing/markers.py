"""Markers in a stream of text: where they are, and how much may still become one (the hold rule, spec parsers 3)."""

import re
from functools import cached_property


class Markers:
    """The marker texts that are legal in one state of a parser."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def search(self, text: str, start: int) -> re.Match[str] | None:
        """The marker that begins first at or after ``start``, of several there the longest."""
        return self._pattern.search(text, start)

    def held(self, text: str, start: int) -> int:
        """Length of the longest tail of ``text[start:]`` that is a proper prefix of a marker."""
        best = 0
        for marker in self.texts:
            for length in range(min(len(marker) - 1, len(text) - start), best, -1):
                if text.endswith(marker[:length]):
                    best = length
                    break
        return best

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # One pattern instead of one search per marker: a marker that never comes would be looked for again and again.
        longest_first = sorted(self.texts, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))
