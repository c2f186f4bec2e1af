"""How many of the generated ids were reasoning, for engines that do not tell (spec text-pipeline 11, 16).

Told by the ids of a family's markers, which are not counted themselves. Where these take several tokens, a parser like
the one that reads the answer says what of the text is reasoning, and the tokens that end in such text are counted.
"""

import codecs
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from smg.parsing.base import Content, Parser, Reasoning, Start
from smg.parsing.format import Format
from smg.parsing.harmony import CHANNEL, ENDS, MESSAGE, START, Harmony, Together
from smg.parsing.reasoning import inkling
from smg.parsing.reasoning.append import Append
from smg.parsing.reasoning.delimiters import Delimiters, rules_of

# The id of a token by its text, None for a text that is no token.
TokenId: TypeAlias = Callable[[str], int | None]
# What a token adds to the text that parsers read, in UTF-8.
TokenText: TypeAlias = Callable[[int], bytes]


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


class InText:
    """Counts ids whose text ends in what ``parser`` takes for reasoning; its markers are no such text."""

    def __init__(self, parser: Parser, text_of: TokenText) -> None:
        self.count = 0
        self._parser = parser
        self._text_of = text_of
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        # Text that the parser may hold, where in the whole text it begins, and where the tokens in it end.
        self._text = ""
        self._start = 0
        self._ends: list[int] = []

    def take(self, ids: Sequence[int]) -> None:
        fresh: list[str] = []
        end = self._start + len(self._text)
        for token in ids:
            text = self._utf8.decode(self._text_of(token))
            end += len(text)
            # Half a character ends in the one that it begins.
            self._ends.append(end + bool(self._utf8.getstate()[0]))
            fresh.append(text)
        new = "".join(fresh)
        self._text += new
        for piece in self._parser.feed(new):
            if isinstance(piece, Content | Reasoning) and piece.text:
                self._found(piece.text, isinstance(piece, Reasoning))

    def _found(self, text: str, reasoning: bool) -> None:
        """The parser has given out ``text``: what comes before it in the whole text was a marker."""
        place = max(self._text.find(text), 0)
        start, end = self._start + place, self._start + place + len(text)
        passed = bisect_right(self._ends, end)
        if reasoning:
            self.count += passed - bisect_right(self._ends, start)
        del self._ends[:passed]
        self._text = self._text[place + len(text) :]
        self._start = end


def counter(reasoning: Format, start: Start, token_id: TokenId, text_of: TokenText | None = None) -> Counter | None:
    """What counts for ``reasoning`` behind the prompt of ``start``; None where nothing tells, or only the text of
    tokens would, and there is no ``text_of``."""
    found = _by_ids(reasoning, start, token_id)
    factory = reasoning.factory
    if found is not None or factory is None or factory is Append or text_of is None:
        return found
    parser = factory(start)
    if start.history:
        parser.feed(start.seals.put(start.history))
    return InText(parser, text_of)


def _by_ids(reasoning: Format, start: Start, token_id: TokenId) -> Counter | None:
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
