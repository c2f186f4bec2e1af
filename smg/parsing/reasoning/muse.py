"""Muse's messages to somebody: to itself it thinks, to the user it answers, to a tool it calls (spec parsers 10).

``<|start|>assistant to=WHO<|message|>BODY`` and an end; the prompt has begun the first one. A header also ends a body
whose own end is missing. Bodies to tools go on as they are, for the tool parser.
"""

import re

from smg.core.stream import Wait
from smg.parsing.base import Content, Piece, Reasoning, Start
from smg.parsing.markers import GAP, WORD

START, MESSAGE = "<|start|>", "<|message|>"
ENDS = ("<|eom|>", "<|eot|>")
SELF = "self"

_HEADERS = tuple(f"{before}to={WORD}{MESSAGE}" for before in (f"{START}assistant{GAP}", " ", ""))
_BARE = (f"{START}assistant{MESSAGE}", f"{START}assistant")
_WHO = re.compile(r"to=([\w.:-]*)<\|message\|>\Z")


class Muse:
    """Splits the messages of one choice."""

    markers: tuple[str, ...] = (START, MESSAGE, *ENDS)

    def __init__(self, start: Start) -> None:
        found = _WHO.search(start.prompt_tail.rstrip())
        self._thinking = found is not None and found[1] == SELF
        self._buffer = ""
        self._seals = start.seals
        self._legal = start.seals.markers(*_HEADERS, *_BARE, *ENDS)

    def feed(self, text: str) -> list[Piece]:
        return self._read(text, final=False)

    def wait(self) -> Wait | None:
        return None if self._buffer else Wait("reasoning" if self._thinking else "text", self._legal.heads)

    def finish(self, cut: bool = False) -> list[Piece]:
        return self._read("", final=True)

    def _read(self, text: str, final: bool) -> list[Piece]:
        buffer, at = self._buffer + text, 0
        pieces: list[Piece] = []
        while True:
            hit = self._legal.find(buffer, at, final)
            end = len(buffer) if hit is None else hit.start
            if end > at:
                pieces.append(Reasoning(buffer[at:end]) if self._thinking else Content(buffer[at:end]))
            at = end
            if hit is None or hit.marker is None:
                break
            at = hit.end
            who = _WHO.search(self._seals.off(buffer[hit.start : hit.end]))
            self._thinking = who is not None and who[1] == SELF
        self._buffer = buffer[at:]
        return pieces
