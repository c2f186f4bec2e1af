"""Who else looks at a generation: the check of what its answer was bound to, and the debug window."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from smg.constraints.verify import Verifier
from smg.core.context import RequestContext
from smg.core.events import Event, Finish, TextDelta, ToolCallDelta
from smg.core.stream import ByteTemplate, TextKind
from smg.pipeline.choice import Choice, Templates, records
from smg.pipeline.debug import MAX_TEXT, Capture, DebugChoice, DebugRecord, DebugWindow, Pending
from smg.pipeline.facts import Facts
from smg.pipeline.reading import Reading
from smg.pipeline.services import Services
from smg.text.tokenizer import Tokenizer

log = logging.getLogger("smg.pipeline")

# Records that are being written, which nobody else holds.
_writing: set[asyncio.Task[None]] = set()


class Watch:
    """Sees the events of one generation, choice by choice."""

    def __init__(self, reading: Reading, facts: Facts, window: DebugWindow | None, *, shown: bool) -> None:
        self._reading = reading
        self._facts = facts
        self._window = window
        self._capture = Capture() if window is not None or shown else None
        self._verifiers: dict[int, Verifier] = {}

    @property
    def wants_events(self) -> bool:
        """Whether it has to see each event. Otherwise ``passed`` may tell it of text that makes none."""
        return self._capture is not None

    def passed(self, choice: int, kind: TextKind, call: int, text: str) -> None:
        """What has reached the client of ``choice`` past its events, before those that are taken next."""
        if kind != "reasoning":
            self.take(choice, [TextDelta(choice, text) if kind == "text" else ToolCallDelta(choice, call, text)])

    def take(self, choice: int, events: list[Event]) -> None:
        """What is put out of ``choice``."""
        if self._capture is not None:
            self._capture.take(events)
        if self._reading.output.rules:
            self._verifiers.setdefault(choice, Verifier(self._reading.output.rules)).take(events)

    def finished(self, choice: Choice, last: Event) -> None:
        """``choice`` is over, with ``last``: hold it against what it was bound to."""
        verifier = self._verifiers.get(choice.index)
        if verifier is None or not isinstance(last, Finish):
            return
        if reason := verifier.broken(last, choice.text if choice.plain else None):
            self._facts.invalid(reason)

    def closed(
        self, ctx: RequestContext, tokenizer: Tokenizer, model: str, ids: Sequence[int], choices: Sequence[Choice]
    ) -> None:
        """The generation is over, whole or not; ``ids`` are its prompt's. A record is written in a thread."""
        if self._capture is None:
            return
        constraint = self._reading.output.constraint
        record = DebugRecord(
            id=ctx.request_id,
            time=self._capture.time,
            endpoint=ctx.endpoint,
            model=model,
            notes=dict(ctx.notes),
            prompt="",
            prompt_ids=list(ids),
            constraint=None if constraint is None else msgspec.to_builtins(constraint),
            choices=[DebugChoice(choice.index, choice.text[:MAX_TEXT], choice.ids) for choice in choices],
            events=self._capture.events,
            events_dropped=self._capture.dropped,
        )
        pending = Pending(tokenizer, record)
        if ctx.debug is not None:
            ctx.debug.append(pending)
        if self._window is None:
            return
        task = asyncio.get_running_loop().create_task(_write(self._window, pending))
        _writing.add(task)
        task.add_done_callback(_writing.discard)


class Watched:
    """The templates of a watched stream: ``watch`` is told what goes direct, and they are, if they want to know."""

    def __init__(self, templates: Templates, watch: Watch) -> None:
        self.counter = templates.counter
        self._templates = templates
        self._watch = watch

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        return self._templates.template(choice, kind, call)

    def written(self, choice: int, kind: TextKind, call: int, text: str) -> None:
        """See ``pipeline.choice.Recorder``."""
        self._watch.passed(choice, kind, call, text)
        if records(self._templates):
            self._templates.written(choice, kind, call, text)


def watch(services: Services, ctx: RequestContext, reading: Reading, facts: Facts) -> Watch | None:
    """What watches a generation for ``ctx``; None when nobody does."""
    shown = ctx.debug is not None
    if services.debug is None and not shown and not reading.output.rules:
        return None
    return Watch(reading, facts, services.debug, shown=shown)


async def _write(window: DebugWindow, pending: Pending) -> None:
    try:
        await asyncio.to_thread(lambda: window.keep(pending.whole()))
    except OSError as error:
        log.warning("a record for the debug window could not be written", extra={"error": str(error)})
