"""Keeps control tokens that a user typed from becoming control tokens (case CT-04).

Wherever a client's string spells a special token, a joiner is put inside the spelling before the chat template runs.
The joiner is an added token of the tokenizer, random per process and so unknown to clients: the library splits the
text there, finds no special token, encodes both halves as ordinary text, and the joiner's id is dropped. The ids
decode to exactly what was typed, and prompts without such spellings are encoded as if none of this existed.

What only the template would put together, of texts that stand one behind the other in it, ``open_ends`` keeps apart.

Limits: a special token of a single character cannot be split; a special token that the tokenizer matches after
normalisation (``normalized: true``) is found only in its literal spelling.
"""

import secrets
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from smg._native.stop_scan import StopAutomaton
from smg.text.open_ends import MARK, OpenEnds

# Words of so many characters at most are remembered if they spell nothing, and so many of them: keys and roles.
_WORD, _WORDS = 16, 256
# ASCII without letters, quotes or blanks: it survives tojson, case filters and trimming.
JOINER = "=~" + "".join(str(secrets.randbelow(10)) for _ in range(32)) + "~="


class Shield:
    """Splits the spellings of ``specials`` (texts of control tokens).

    ``joiner`` is what splits a text in the tokenizer and leaves no id behind; empty when the tokenizer has no such
    token, and then nothing is split.
    """

    def __init__(self, specials: Iterable[str], joiner: str = JOINER) -> None:
        self.joiner = joiner
        self._specials = list(specials) if joiner else []
        self._finders = _finders([text for text in dict.fromkeys(self._specials) if _cut(text)])
        self._ends = OpenEnds(self._specials)
        self._clean: set[str] = set()

    def over(self, more: Iterable[str]) -> "Shield":
        """A shield over ``more`` texts as well."""
        return Shield([*self._specials, *more], self.joiner)

    def protect(self, value: Any) -> Any:
        """Copy a JSON-like value for a template, with every string (keys too) protected. Containers are new objects.

        What the template makes of it has to be settled (``settle``).
        """
        match value:
            case str():
                known = len(value) <= _WORD and value in self._clean
                return value if known else self._ends.mark(self.protect_text(value))
            case dict():
                clean, protect = self._clean, self.protect
                # Most keys are known, and are no words of clients.
                return {key if key in clean else protect(key): protect(item) for key, item in value.items()}
            case list() | tuple():
                return [self.protect(item) for item in value]
            case _:
                return value

    def settle(self, prompt: str) -> str:
        """Finish what a template has made of protected values."""
        return self._ends.settle(prompt, self.joiner)

    def protect_text(self, text: str) -> str:
        """Put joiners into ``text`` until nothing in it spells a special token.

        The search holds no GIL: in a long text with many beginnings of many special tokens it takes time.
        """
        # Long texts are not asked for: to hash one takes as long as to copy it, with the GIL.
        if len(text) <= _WORD and text in self._clean:
            return text
        data = text.encode("utf-8", "surrogatepass")
        for finder in self._finders:
            if finder.edges(data):
                break
        else:
            if len(text) <= _WORD and len(self._clean) < _WORDS and self._ends.mark(text) == text:
                self._clean.add(text)
            return text
        pieces = [data]
        # A half may spell a shorter special itself, and cutting one spelling may leave another that overlapped it.
        while len(halves := [half for piece in pieces for half in self._halves(piece)]) > len(pieces):
            pieces = halves
        return JOINER.join(piece.decode("utf-8", "surrogatepass") for piece in pieces)

    def _halves(self, piece: bytes) -> list[bytes]:
        """Cut the spellings in ``piece`` of those specials that are found first."""
        for finder in self._finders:
            edges = [0, *finder.edges(piece), len(piece)]
            if len(edges) > 2:
                return [piece[start:end] for start, end in pairwise(edges)]
        return [piece]


class _Finder:
    """Finds the spellings of ``specials`` and where to cut them. Raises ValueError when they are too many for one."""

    def __init__(self, specials: Sequence[str]) -> None:
        encoded = [text.encode("utf-8", "surrogatepass") for text in specials]
        self._matcher = StopAutomaton(encoded)
        # From the end of each spelling back to its cut, in bytes.
        self._behind = [len(text[_cut(text) :].encode("utf-8", "surrogatepass")) for text in specials]

    def edges(self, data: bytes) -> list[int]:
        found = self._matcher.leftmost(data)
        return [end - self._behind[number] for end, number in found] if found else []


def _finders(specials: Sequence[str]) -> list[_Finder]:
    """As few finders as ``specials`` need."""
    if not specials:
        return []
    try:
        return [_Finder(specials)]
    except ValueError:
        if len(specials) == 1:
            raise
        half = len(specials) // 2
        return [*_finders(specials[:half]), *_finders(specials[half:])]


def reveal(text: str) -> str:
    """Take the joiners out again, and the marks of open ends."""
    return text.replace(JOINER, "").replace(MARK, "")


def _cut(text: str) -> int:
    """Where to cut a special's text: before its second character that is no space (0: it cannot be cut).

    After a cut some tokenizers prepend a space mark, which can be told from the text only if no space follows.
    """
    return next((index for index in range(1, len(text)) if not text[index].isspace()), 0)
