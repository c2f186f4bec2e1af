"""Harmony, the message format of gpt-oss: one parser for reasoning, answer and calls (spec text-pipeline 16).

An answer is a row of messages, ``<|start|>ROLE to=RECIPIENT<|channel|>NAME <|constrain|>TYPE<|message|>BODY`` and an
end token; the prompt has begun the first one. Headers are never shown. A broken header costs only itself: the parser
goes on at the next ``<|start|>``, ``<|channel|>`` or ``<|message|>``, and text without a header is shown (case RP-07).
"""

import logging
import re
from enum import Enum, auto

import msgspec

from smg.core.stream import Wait
from smg.parsing.base import Content, Piece, Reasoning, Start
from smg.parsing.engine.calls import Calls
from smg.parsing.engine.cursor import Malformed

logger = logging.getLogger(__name__)

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|return|>", "<|call|>")

# Characters a header may have, before its channel and altogether: more is text that lacks a header.
MAX_LEAD = 96
MAX_HEADER = 512

_FUNCTION = "functions."
_BUILT_IN = ("python", "browser", "container")
_ROLE = re.compile(r"\s*(?:assistant|tool|user|system|developer)\b")
_CHANNEL = re.compile(r"<\|channel\|>\s*([A-Za-z]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]*)")
_TYPE = re.compile(r"<\|constrain\|>\s*\w*|<\|channel\|>")


class _Kind(Enum):
    REASONING = auto()
    CONTENT = auto()
    CALL = auto()


class _Header(msgspec.Struct, frozen=True):
    """``rest`` is what is neither role, recipient, channel nor type."""

    channel: str
    recipient: str
    rest: str


class Harmony:
    """Splits messages by channel and recipient; calls are recognised when the request offers tools."""

    markers: tuple[str, ...] = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)

    def __init__(self, start: Start) -> None:
        self._calls = Calls(start)
        self._offered = bool(start.tools)
        self._legal_in_body = start.seals.markers(START, CHANNEL, *ENDS)
        self._legal_in_header = start.seals.markers(*self.markers)
        self._buffer = ""
        self._header: str | None = ""
        self._kind: _Kind | None = None
        self._last = _Kind.CONTENT
        self._blank = ""
        self._straying = False
        # What has been shown of each kind, so that messages do not run into each other.
        self._shown: set[_Kind] = set()
        self._fresh = False
        self._pieces: list[Piece] = []
        self._warned = False
        self._begin(start.prompt_tail)

    def feed(self, text: str) -> list[Piece]:
        self._read(text, final=False)
        return self._take()

    def wait(self) -> Wait | None:
        heads = self._legal_in_body.heads
        if self._buffer or self._kind is None:
            return None
        if self._kind is _Kind.CALL:
            return Wait("arguments", heads) if self._calls.passes_arguments else None
        if self._fresh:
            return None
        if self._kind is _Kind.REASONING:
            return Wait("reasoning", heads)
        return Wait("text", heads) if self._calls.passes_text else None

    def finish(self, cut: bool = False) -> list[Piece]:
        self._read("", final=True)
        if self._header:
            self._broken(self._header)
        if self._calls.open:
            self._calls.end(complete=not cut)
        self._calls.finish()
        return self._take()

    def _begin(self, tail: str) -> None:
        """The prompt may have begun a header, or even a body that is continued."""
        _, found, header = tail.rpartition(START)
        if not found or any(end in header for end in ENDS):
            return
        head, opened, _ = header.partition(MESSAGE)
        if opened:
            self._open(head)
        else:
            self._header = _ROLE.sub("", header, count=1)

    def _read(self, text: str, final: bool) -> None:
        buffer, at = self._buffer + text, 0
        while True:
            legal = self._legal_in_body if self._kind is not None else self._legal_in_header
            hit = legal.find(buffer, at, final)
            end = len(buffer) if hit is None else hit.start
            if end > at:
                self._text(buffer[at:end])
            at = end
            if hit is None or hit.marker is None:
                break
            at = hit.end
            self._marker(hit.marker)
        self._buffer = buffer[at:]

    def _marker(self, marker: str) -> None:
        if marker == MESSAGE:
            self._open(self._header or "")
        elif marker in (CHANNEL, CONSTRAIN):
            self._close()
            self._between()
            self._header = (self._header or "") + marker
        else:
            self._close()
            if self._header:
                self._broken(self._header)
            self._header = "" if marker == START else None
            self._between()

    def _text(self, text: str) -> None:
        if self._kind is not None:
            self._body(text)
        elif self._header is None:
            self._stray(text)
        else:
            # A marker alone may have made it too long.
            room = max((MAX_HEADER if CHANNEL in self._header else MAX_LEAD) - len(self._header), 0)
            self._header += text[:room]
            if len(text) > room:
                header, self._header = self._header, None
                self._broken(header)
                self._straying = True
                self._text(text[room:])

    def _open(self, text: str) -> None:
        """A header is complete."""
        header = _parsed(text)
        self._header = None
        self._between()
        self._fresh = True
        self._kind = self._kind_of(header)
        if self._kind is _Kind.CALL:
            try:
                self._calls.start(header.recipient.removeprefix(_FUNCTION))
            except Malformed:
                self._kind = _Kind.CONTENT
        self._last = _Kind.REASONING if self._kind is _Kind.REASONING else _Kind.CONTENT

    def _kind_of(self, header: _Header) -> _Kind:
        if header.recipient.startswith(_FUNCTION):
            return _Kind.CALL if self._offered else _Kind.CONTENT
        if header.recipient.split(".")[0] in _BUILT_IN or header.channel == "analysis":
            return _Kind.REASONING
        return _Kind.CONTENT

    def _close(self) -> None:
        """The message is over."""
        if self._kind is _Kind.CALL and self._calls.open:
            self._calls.end()
        self._kind = None

    def _body(self, text: str) -> None:
        if self._kind is _Kind.CALL:
            try:
                self._calls.arguments(text)
            except Malformed:
                self._calls.end(complete=False)
                self._kind = _Kind.CONTENT
                self._show(_Kind.CONTENT, text)
        elif self._kind is not None:
            self._show(self._kind, text)

    def _show(self, kind: _Kind, text: str) -> None:
        if self._fresh and kind in self._shown:
            text = "\n" + text
        self._fresh = False
        self._shown.add(kind)
        if kind is _Kind.REASONING:
            self._pieces += [*self._calls.take(), Reasoning(text)]
        else:
            self._calls.content(text)

    def _stray(self, text: str) -> None:
        """Text between messages; only white space belongs there, and goes unless other text follows it."""
        if not self._straying:
            text = self._blank + text
            self._blank = text[:MAX_HEADER] if text.isspace() else ""
            if self._blank:
                return
        self._straying = True
        self._warn()
        self._show(self._last, text)

    def _between(self) -> None:
        self._blank = ""
        self._straying = False

    def _broken(self, text: str) -> None:
        """A header that never became a message: what it holds beside its own words is text."""
        rest = _parsed(text).rest
        if rest.strip():
            self._warn()
            self._show(self._last, rest)

    def _warn(self) -> None:
        if not self._warned:
            logger.warning("malformed Harmony message; going on at the next header")
        self._warned = True

    def _take(self) -> list[Piece]:
        pieces, self._pieces = [*self._pieces, *self._calls.take()], []
        return pieces


class Together:
    """Harmony for clients who do not want reasoning apart: it is part of the answer."""

    markers = Harmony.markers

    def __init__(self, start: Start) -> None:
        self._harmony = Harmony(start)
        self._thought = False

    def feed(self, text: str) -> list[Piece]:
        return self._joined(self._harmony.feed(text))

    def wait(self) -> Wait | None:
        wait = self._harmony.wait()
        return Wait("text", wait.markers) if wait is not None and wait.kind == "reasoning" else wait

    def finish(self, cut: bool = False) -> list[Piece]:
        return self._joined(self._harmony.finish(cut))

    def _joined(self, pieces: list[Piece]) -> list[Piece]:
        out: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Content) and self._thought:
                out.append(Content("\n"))
            self._thought = isinstance(piece, Reasoning) or (self._thought and not isinstance(piece, Content))
            out.append(Content(piece.text) if isinstance(piece, Reasoning) else piece)
        return out


def _parsed(text: str) -> _Header:
    channels: list[str] = _CHANNEL.findall(text)
    recipients: list[str] = _RECIPIENT.findall(text)
    rest = _ROLE.sub("", text, count=1)
    for expression in (_CHANNEL, _RECIPIENT, _TYPE):
        rest = expression.sub("", rest)
    return _Header(
        channel=next((name for name in reversed(channels) if name), ""),
        recipient=recipients[-1] if recipients else "",
        rest=rest,
    )
