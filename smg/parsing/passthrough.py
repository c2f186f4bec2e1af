"""Passthrough: text unchanged, no reasoning and no calls. Serves as both kinds of parser."""

from smg.core.stream import Wait
from smg.parsing.base import Content, Piece, Start


class Passthrough:
    """Gives every text back as Content."""

    markers: tuple[str, ...] = ()

    def __init__(self, start: Start) -> None:
        del start

    def feed(self, text: str) -> list[Piece]:
        return [Content(text)]

    def wait(self) -> Wait:
        return Wait("text")

    def finish(self, cut: bool = False) -> list[Piece]:
        return []
