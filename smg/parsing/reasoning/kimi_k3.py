"""Kimi K3's channels: thinking, response and tools are elements of one message (spec parsers 5.3)."""

from smg.core.stream import Wait
from smg.parsing.base import Content, Piece, Reasoning, Start
from smg.parsing.markers import GAP

_PROMPT_OPENER = "<|open|>think<|sep|>"
# What the model writes between its thinking and its answer, spelled as in its template.
THINK_CLOSER = "<|close|>think<|sep|>"
RESPONSE_OPENER = "<|open|>response<|sep|>"


def _tag(kind: str, name: str) -> str:
    return f"<|{kind}|>{GAP}{name}{GAP}<|sep|>"


OPEN_THINK, CLOSE_THINK = _tag("open", "think"), _tag("close", "think")
OPEN_TOOLS = _tag("open", "tools")
OPENERS = (_tag("open", "response"), _tag("open", "message"))
CLOSERS = (_tag("close", "response"), _tag("close", "message"))
END = "<|end_of_msg|>"


class KimiK3:
    """Splits thinking from the rest; the tools channel goes on as it is, for the tool parser.

    The prompt opens the first channel, so its tail tells what the output begins with; a prompt that does not show it is
    taken to have opened thinking, unless that is off.
    """

    markers: tuple[str, ...] = ("<|open|>", "<|close|>", "<|sep|>", END)

    def __init__(self, start: Start) -> None:
        self._inside = self.starts_inside(start)
        self._buffer = ""
        self._inside_legal = start.seals.markers(OPEN_THINK, CLOSE_THINK, OPEN_TOOLS, *OPENERS, *CLOSERS, END)
        self._outside_legal = start.seals.markers(OPEN_THINK, CLOSE_THINK, *OPENERS, *CLOSERS, END)

    @staticmethod
    def starts_inside(start: Start) -> bool:
        """Whether the output begins inside thinking."""
        tail = start.prompt_tail.rstrip()
        opened = tail.endswith(_PROMPT_OPENER)
        return opened or (start.thinking is not False and not tail.endswith("<|sep|>"))

    def feed(self, text: str) -> list[Piece]:
        return self._read(text, final=False)

    def wait(self) -> Wait | None:
        if self._buffer:
            return None
        if self._inside:
            return Wait("reasoning", self._inside_legal.heads)
        return Wait("text", self._outside_legal.heads)

    def finish(self, cut: bool = False) -> list[Piece]:
        return self._read("", final=True)

    def _read(self, text: str, final: bool) -> list[Piece]:
        buffer, at = self._buffer + text, 0
        pieces: list[Piece] = []
        while True:
            hit = (self._inside_legal if self._inside else self._outside_legal).find(buffer, at, final)
            end = len(buffer) if hit is None else hit.start
            if end > at:
                pieces.append(Reasoning(buffer[at:end]) if self._inside else Content(buffer[at:end]))
            at = end
            if hit is None or hit.marker is None:
                break
            if hit.marker == OPEN_TOOLS:
                # Stays in the text; outside it is no marker of ours.
                self._inside = False
                continue
            at = hit.end
            if hit.marker == OPEN_THINK:
                self._inside = True
            elif hit.marker != END:
                self._inside = False
        self._buffer = buffer[at:]
        return pieces
