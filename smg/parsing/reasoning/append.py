"""Reasoning that stays in the text: only the opener, which the prompt has taken, is put back (spec parsers 10)."""

from smg.core.stream import Wait
from smg.parsing.base import Content, Piece, Start
from smg.parsing.reasoning.delimiters import OPENER


class Append:
    """Everything is Content, and it begins with the opener."""

    markers: tuple[str, ...] = ()

    def __init__(self, start: Start) -> None:
        self._due = not start.history

    def feed(self, text: str) -> list[Piece]:
        if not self._due or not text:
            return [Content(text)]
        self._due = False
        return [Content(OPENER), Content(text)]

    def wait(self) -> Wait | None:
        return None if self._due else Wait("text")

    def finish(self, cut: bool = False) -> list[Piece]:
        return []
