"""A streamed transcription: ``transcript.text.delta`` events, then ``transcript.text.done`` (spec agentic-apis 9)."""

from collections.abc import Mapping

import msgspec

from smg.api.audio import asr
from smg.api.audio.words import Words
from smg.api.dialect import Meta
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape
from smg.core.events import Event, TextDelta, Usage
from smg.core.stream import ByteTemplate, Counter, TextKind


class TranscriptStream:
    """Implements ``api.dialect.StreamEncoder``.

    The last event has all words once more, so that every piece of text has to pass Python; speech has a few a second.
    """

    def __init__(self, usage: Usage) -> None:
        self.counter = Counter()
        self._usage = usage
        self._words = Words()
        self._said: list[str] = []

    def preamble(self, *, direct: bool) -> bytes:
        return b""

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        return None

    def events(self, events: list[Event]) -> bytes:
        """An event for each piece of text; none while it may still be the language's name."""
        for event in events:
            if isinstance(event, Usage):
                self._usage = event
        pieces = (event.text for event in events if isinstance(event, TextDelta))
        return b"".join(self._delta(self._words.feed(text)) for text in pieces)

    def failure(self, error: GatewayError) -> bytes:
        return _event(openai_shape(asr.located(error)))

    def closing(self) -> bytes:
        """Words that were held back, the whole transcript with its usage, and the end marker."""
        rest = self._delta(self._words.finish())
        done = {"type": "transcript.text.done", "text": "".join(self._said), "usage": asr.usage(self._usage)}
        return rest + _event(done) + b"data: [DONE]\n\n"

    def keepalive(self) -> bytes:
        return b": ping\n\n"

    def _delta(self, words: str) -> bytes:
        if not words:
            return b""
        self._said.append(words)
        return _event({"type": "transcript.text.delta", "delta": words})


class Transcripts:
    """What ``api.stream.Stream`` asks of a dialect."""

    def encoder(self, ctx: RequestContext, meta: Meta) -> TranscriptStream:
        return TranscriptStream(meta.usage)

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {}


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
