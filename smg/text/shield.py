"""Keeps control tokens that a user typed from becoming control tokens (case CT-04).

Wherever a client's string spells a special token, a joiner is put inside the spelling before the chat template runs.
The joiner is an added token of the tokenizer, random per process and so unknown to clients: the library splits the
text there, finds no special token, encodes both halves as ordinary text, and the joiner's id is dropped. The ids
decode to exactly what was typed, and prompts without such spellings are encoded as if none of this existed.

Limits: a special token of a single character cannot be split; a special token that the tokenizer matches after
normalisation (``normalized: true``) is found only in its literal spelling.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Any

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
        splittable = sorted((text for text in self._specials if _cut(text)), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, splittable))) if splittable else None

    def over(self, more: Iterable[str]) -> "Shield":
        """A shield over ``more`` texts as well."""
        return Shield([*self._specials, *more], self.joiner)

    def protect(self, value: Any) -> Any:
        """Copy a JSON-like value with every string (keys too) protected. Containers are always new objects."""
        match value:
            case str():
                return self.protect_text(value)
            case dict():
                return {self.protect(key): self.protect(item) for key, item in value.items()}
            case list() | tuple():
                return [self.protect(item) for item in value]
            case _:
                return value

    def protect_text(self, text: str) -> str:
        """Put joiners into ``text`` until nothing in it spells a special token."""
        if self._pattern is None or self._pattern.search(text) is None:
            return text
        pieces = [text]
        # A half may spell a shorter special itself, and cutting one spelling may leave another that overlapped it.
        while any(self._pattern.search(piece) for piece in pieces):
            pieces = [half for piece in pieces for half in self._pattern.sub(_join, piece).split(JOINER)]
        return JOINER.join(pieces)


def reveal(text: str) -> str:
    """Take the joiners out again."""
    return text.replace(JOINER, "")


def _cut(text: str) -> int:
    """Where to cut a special's text: before its second character that is no space (0: it cannot be cut).

    After a cut some tokenizers prepend a space mark, which can be told from the text only if no space follows.
    """
    return next((index for index in range(1, len(text)) if not text[index].isspace()), 0)


def _join(found: re.Match[str]) -> str:
    at = _cut(found[0])
    return found[0][:at] + JOINER + found[0][at:]
