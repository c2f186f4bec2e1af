"""Inkling's typed blocks: each says by a token what it is, and ends with one (spec parsers 5.2)."""

from smg.core.stream import Wait
from smg.parsing.base import Content, Piece, Reasoning, Start

HEADER = "<|message_model|>"
THINKING = "<|content_thinking|>"
TEXT = "<|content_text|>"
TOOL = "<|content_invoke_tool_json|>"
HIDDEN = ("<|content_invoke_tool_text|>", "<|content_tool_error|>")
ENDS = ("<|end_message|>", "<|content_model_end_sampling|>")


class Inkling:
    """Splits the blocks of one choice; those of calls go on as they are, for the tool parser."""

    markers: tuple[str, ...] = (HEADER, THINKING, TEXT, TOOL, *HIDDEN, *ENDS)

    def __init__(self, start: Start) -> None:
        self._block = TEXT
        self._buffer = ""
        self._legal = start.seals.markers(*self.markers)

    def feed(self, text: str) -> list[Piece]:
        return self._read(text, final=False)

    def wait(self) -> Wait | None:
        if self._buffer or self._block in (HEADER, *HIDDEN):
            return None
        return Wait("reasoning" if self._block == THINKING else "text", self._legal.heads)

    def finish(self, cut: bool = False) -> list[Piece]:
        return self._read("", final=True)

    def _read(self, text: str, final: bool) -> list[Piece]:
        buffer, at = self._buffer + text, 0
        pieces: list[Piece] = []
        while (hit := self._legal.find(buffer, at, final)) is not None:
            self._emit(pieces, buffer[at : hit.start])
            at = hit.start
            if hit.marker is None:
                break
            at = hit.end
            self._enter(pieces, hit.marker, buffer[hit.start : hit.end])
        else:
            self._emit(pieces, buffer[at:])
            at = len(buffer)
        self._buffer = buffer[at:]
        return pieces

    def _enter(self, pieces: list[Piece], marker: str, text: str) -> None:
        if marker == TOOL or (self._block == TOOL and marker in ENDS):
            pieces.append(Content(text))
        self._block = TEXT if marker in ENDS else marker

    def _emit(self, pieces: list[Piece], text: str) -> None:
        if not text or self._block in (HEADER, *HIDDEN):
            return
        pieces.append(Reasoning(text) if self._block == THINKING else Content(text))
