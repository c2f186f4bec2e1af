"""Keeps control tokens apart that arise only where texts of clients meet in a prompt (case CT-04).

Templates write the parts of a message one behind the other, most of them without anything between: ``<|im_`` and
``end|>`` spell nothing by themselves. So a text that ends as a control token begins gets a mark behind it. When the
template is done the marks are taken out, and only where what stands around one spells a control token, a joiner (see
``shield``) takes its place: all other prompts are what they would be without this.
"""

import secrets
from collections.abc import Iterable
from itertools import pairwise

# As the shield's joiner, of characters that survive what templates do to texts; it never stays in a prompt.
MARK = "=~" + "".join(str(secrets.randbelow(10)) for _ in range(32)) + "~="


class OpenEnds:
    """Marks texts that end as one of ``specials`` (texts of control tokens) begins.

    Those that begin with a letter are left out: roles and types, which templates compare, may end with one.
    """

    def __init__(self, specials: Iterable[str]) -> None:
        self._specials = frozenset(text for text in specials if not text[:1].isalnum())
        self._begun = {text[:end] for text in self._specials for end in range(1, len(text))}
        self._firsts = frozenset(text[0] for text in self._begun)
        self._lengths = sorted({len(text) for text in self._specials})
        self._reach = max(self._lengths, default=1) - 1

    def mark(self, text: str) -> str:
        """Put a mark behind the end of ``text``, before blanks, which templates trim; most texts need none."""
        end = len(text.rstrip())
        if not any(self._begins(text, start, end) for start in range(max(0, end - self._reach), end)):
            return text
        return text[:end] + MARK + text[end:]

    def settle(self, prompt: str, joiner: str) -> str:
        """Take the marks out of ``prompt``, and put ``joiner`` where a control token would come of that."""
        if MARK not in prompt:
            return prompt
        pieces = prompt.split(MARK)
        whole, out, seam = "".join(pieces), [pieces[0]], 0
        for before, piece in pairwise(pieces):
            seam += len(before)
            out += [joiner, piece] if self._spelled_over(whole, seam) else [piece]
        return "".join(out)

    def _begins(self, text: str, start: int, end: int) -> bool:
        return text[start] in self._firsts and text[start:end] in self._begun

    def _spelled_over(self, text: str, seam: int) -> bool:
        """Whether a control token in ``text`` begins before ``seam`` and ends behind it."""
        starts = (start for start in range(max(0, seam - self._reach), seam) if self._begins(text, start, seam))
        return any(
            start + length > seam and text[start : start + length] in self._specials
            for start in starts
            for length in self._lengths
        )
