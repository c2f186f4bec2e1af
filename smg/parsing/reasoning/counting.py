"""How many of the generated ids were reasoning, for engines that do not tell (spec text-pipeline 11, 16).

Told by the ids of a family's markers, which are not counted themselves. Families whose markers take several tokens
can't be counted that way.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from smg.parsing.base import Start
from smg.parsing.format import Format
from smg.parsing.harmony import CHANNEL, ENDS, MESSAGE, START, Harmony, Together
from smg.parsing.reasoning import inkling
from smg.parsing.reasoning.delimiters import Delimiters, rules_of

# The id of a token by its text, None for a text that is no token.
TokenId: TypeAlias = Callable[[str], int | None]


class Counter(Protocol):
    """``count`` is the number of ids of reasoning among those taken."""

    count: int

    def take(self, ids: Sequence[int]) -> None: ...


class Between:
    """Counts ids between openers and closers; ``inside`` tells where the output begins."""

    def __init__(self, openers: frozenset[int], closers: frozenset[int], *, inside: bool) -> None:
        self.count = 0
        self._openers = openers
        self._closers = closers
        self._markers = openers | closers
        self._inside = inside

    def take(self, ids: Sequence[int]) -> None:
        if self._markers.isdisjoint(ids):
            self.count += len(ids) if self._inside else 0
            return
        for token in ids:
            if token in self._markers:
                self._inside = token in self._openers
            elif self._inside:
                self.count += 1


class InAnalysis:
    """Counts ids of Harmony's messages on the channel ``analysis``."""

    def __init__(self, ids: dict[str, int]) -> None:
        self.count = 0
        self._message = ids[MESSAGE]
        self._analysis = ids["analysis"]
        self._borders = frozenset(ids[text] for text in (START, CHANNEL, *ENDS) if text in ids)
        self._thinking = False
        self._body = False

    def take(self, ids: Sequence[int]) -> None:
        for token in ids:
            if token == self._message:
                self._body = True
            elif token in self._borders:
                self._body = self._thinking = False
            elif not self._body:
                self._thinking = self._thinking or token == self._analysis
            elif self._thinking:
                self.count += 1


def counter(reasoning: Format, start: Start, token_id: TokenId) -> Counter | None:
    """What counts for ``reasoning`` behind the prompt of ``start``; None where ids do not tell."""
    factory = reasoning.factory
    rules = rules_of(factory)
    if rules is not None:
        return _between(rules, start, token_id)
    if factory is inkling.Inkling:
        rest = (inkling.HEADER, inkling.TEXT, inkling.TOOL, *inkling.HIDDEN, *inkling.ENDS)
        openers, closers = _ids((inkling.THINKING,), token_id), _ids(rest, token_id)
        return Between(openers, closers, inside=False) if openers and closers else None
    if factory in (Harmony, Together):
        found = {text: token_id(text) for text in (START, CHANNEL, MESSAGE, *ENDS, "analysis")}
        known = {text: number for text, number in found.items() if number is not None}
        return InAnalysis(known) if {MESSAGE, CHANNEL, "analysis"} <= known.keys() else None
    return None


def _between(rules: Delimiters, start: Start, token_id: TokenId) -> Counter | None:
    closers = _ids(rules.closers, token_id)
    if not closers:
        return None
    inside = rules.starts_inside(start)
    if start.history:
        opened = inside or any(text in start.history for text in rules.openers)
        inside = opened and not any(text in start.history for text in rules.closers)
    tools = _ids(rules.tools, token_id) if start.tools else frozenset()
    return Between(_ids(rules.openers, token_id), closers | tools, inside=inside)


def _ids(texts: Iterable[str], token_id: TokenId) -> frozenset[int]:
    return frozenset(number for text in texts if (number := token_id(text)) is not None)
