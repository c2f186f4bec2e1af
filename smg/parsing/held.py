"""What a parser may still hold, so that nothing is lost when it fails (spec parsers 1, "Never raises", "Malformed").

Parsers keep text back until they know what it is. Output comes in the order of the input, so what a parser holds is
always an end of what it was fed; this is told from outside, without asking a parser that has just broken. Where that
can't be told exactly (a marker was swallowed, a call is half written), too much is remembered rather than too little.
"""

from collections.abc import Sequence

from smg.parsing.base import CallArguments, CallEnd, CallStart, Content, Piece, Reasoning


class Held:
    """Follows one parser: ``took`` after each feed. ``open`` is True inside a call."""

    def __init__(self) -> None:
        self.open = False
        self._parts: list[str] = []

    def took(self, text: str, pieces: Sequence[Piece]) -> None:
        """The parser was fed ``text`` and gave ``pieces`` for it."""
        self._parts.append(text)
        for piece in pieces:
            match piece:
                case CallStart():
                    self.open = True
                case CallEnd():
                    # The call ended somewhere in ``text``: what came before was its own.
                    self.open = False
                    held = self.take()
                    self._parts = [held[max(0, len(held) - len(text)) :]]
                case Content() | Reasoning() if piece.text and not self.open:
                    self._release(piece.text)
                case CallArguments():
                    # May be written anew from another notation, and then tells nothing about the place in the text.
                    pass

    def settle(self) -> None:
        """The parser holds nothing now, what is part of an open call excepted."""
        if not self.open:
            self._parts = []

    def take(self) -> str:
        """What may be held, and forget it."""
        text = "".join(self._parts)
        self._parts = []
        return text

    def _release(self, text: str) -> None:
        """``text`` came out: what is before it and itself is not held any more."""
        held = self.take()
        found = held.find(text)
        # Text that was changed on its way is at least as long in the input.
        end = len(text) if found < 0 else found + len(text)
        self._parts = [held[end:]]
