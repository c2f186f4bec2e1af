"""Encodes a streamed answer: ``text_completion`` objects as server-sent events (spec text-pipeline 12).

As for chat, a chunk is put together from bytes made once per response, so that the direct path cannot differ.
"""

import msgspec

from smg._native import sse
from smg.api.dialect import Meta
from smg.api.openai_completions.decode import CompletionOptions
from smg.api.openai_completions.echo import echoed
from smg.api.openai_completions.logprobs import OutputLogprobs, prompt_logprobs
from smg.api.openai_completions.types import CompletionLogprobs
from smg.api.openai_parts import usage
from smg.core.errors import GatewayError, openai_shape
from smg.core.events import Event, Failure, Finish, PromptLogprobs, TextDelta, Usage
from smg.core.stream import ByteTemplate, Counter, TextKind

_encode = msgspec.json.encode


class CompletionStream:
    """Implements ``api.dialect.StreamEncoder``."""

    def __init__(self, identity: str, meta: Meta, options: CompletionOptions) -> None:
        self.counter = Counter()
        self._meta = meta
        self._options = options
        self._usage = meta.usage
        head = {"id": identity, "object": "text_completion", "created": meta.created, "model": meta.model}
        self._head = b"data: " + _encode(head)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if options.usage.include else b"]}\n\n"
        # Choices whose prompt is still to be echoed, and the log probabilities of those that have begun.
        self._silent = set(range(meta.request.choices)) if options.echo else set()
        self._rows: dict[int, OutputLogprobs] = {}

    def preamble(self, *, direct: bool) -> bytes:
        """The echoed prompts, unless they wait for their log probabilities."""
        if self._options.logprobs:
            return b""
        return b"".join(self._echo(choice) for choice in sorted(self._silent))

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """Bytes of a text chunk; None when each chunk carries running usage. There is nothing but text."""
        if self._options.usage.continuous or kind != "text":
            return None
        before = self._head + b'{"index":%d,"text":"' % choice
        return ByteTemplate((before, b'","logprobs":null,"finish_reason":null}' + self._tail), ("text",))

    def events(self, events: list[Event]) -> bytes:
        for event in events:
            if isinstance(event, Usage):
                self._usage = event
        return b"".join(self._event(event) for event in events)

    def failure(self, error: GatewayError) -> bytes:
        return b"data: " + _encode(openai_shape(error)) + b"\n\n"

    def closing(self) -> bytes:
        """The usage chunk, if it was asked for, and the end marker (field case OA-03)."""
        done = b"data: [DONE]\n\n"
        if not self._options.usage.include:
            return done
        return self._head + b'],"usage":' + _encode(usage(self._usage)) + b"}\n\n" + done

    def keepalive(self) -> bytes:
        return b": ping\n\n"

    def _event(self, event: Event) -> bytes:
        if isinstance(event, Usage | Failure):
            return b""
        if isinstance(event, PromptLogprobs):
            return self._echo(event.choice, event)
        echo = self._echo(event.choice)
        match event:
            case TextDelta() if event.text or event.logprobs:
                return echo + self._chunk(event.choice, event.text, self._logprobs(event))
            case Finish():
                return echo + self._finish(event)
        return echo

    def _echo(self, choice: int, told: PromptLogprobs | None = None) -> bytes:
        """The chunk with a choice's prompt, once."""
        if choice not in self._silent:
            return b""
        self._silent.discard(choice)
        prompt = self._prompt(choice)
        rows = prompt_logprobs(told.rows, prompt, self._meta.decoder) if told is not None else None
        return self._chunk(choice, prompt, rows)

    def _prompt(self, choice: int) -> str:
        return echoed(self._meta.request, choice // self._meta.request.n, self._meta.decoder)

    def _logprobs(self, event: TextDelta) -> CompletionLogprobs | None:
        if not self._options.logprobs or event.logprobs is None:
            return None
        rows = self._rows.get(event.choice)
        if rows is None:
            before = len(self._prompt(event.choice)) if self._options.echo else 0
            skip = self._meta.request.skip_special_tokens
            rows = OutputLogprobs(self._meta.decoder, before, skip_special_tokens=skip)
            self._rows[event.choice] = rows
        return rows.take(event.logprobs)

    def _chunk(self, choice: int, text: str, rows: CompletionLogprobs | None) -> bytes:
        probabilities = b"null" if rows is None else _encode(rows)
        body = b'{"index":%d,"text":"%b","logprobs":%b,"finish_reason":null}'
        return self._head + body % (choice, sse.escape(text), probabilities) + self._close()

    def _finish(self, event: Finish) -> bytes:
        extra = b"" if event.matched_stop is None else b',"matched_stop":' + _encode(event.matched_stop)
        body = b'{"index":%d,"text":"","logprobs":null,"finish_reason":%b%b}'
        return self._head + body % (event.choice, _encode(event.reason), extra) + self._close()

    def _close(self) -> bytes:
        if self._options.usage.continuous:
            return b'],"usage":' + _encode(usage(self._usage)) + b"}\n\n"
        return self._tail
