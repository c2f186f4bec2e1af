"""One choice of a running generation: its row of the StreamTable, its parsing chain and its end."""

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from smg._native import sse
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.core.errors import GatewayError
from smg.core.events import Event, Finish
from smg.core.stream import SEAL, ByteTemplate, Counter, Decoder, RowOutput, RowSpec, Sink, StreamTable, TextKind, Wait
from smg.parsing.reasoning.counting import Counter as Thought
from smg.pipeline.scored import Rows
from smg.pipeline.signing import Signing
from smg.pipeline.spelled import Spelled
from smg.pipeline.stops import Stops

# Nothing is written of text that a parser waits for the end of.
NOTHING = ByteTemplate((b"",), ())


class Parsing(Protocol):
    """The part of ``parsing.chain.Chain`` a choice uses."""

    plain: bool
    enough: bool
    ends_early: bool

    def feed(self, output: RowOutput) -> list[Event]: ...

    def wait(self) -> Wait | None: ...

    def finish(self, reason: str, matched: int | str | None) -> list[Event]: ...


class Templates(Protocol):
    """The part of a dialect's encoder that direct rows need."""

    counter: Counter

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None: ...


class Recorder(Templates, Protocol):
    """An encoder that has to know what went direct."""

    def written(self, choice: int, kind: TextKind, call: int, text: str) -> None:
        """Take note of ``text``, which has gone to the client by the template of ``kind`` and ``call``.

        Called once per turn that went direct, at its end: before the encoder gets the events that follow.
        """
        ...


def records(templates: Templates) -> TypeGuard[Recorder]:
    """Whether ``templates`` is a Recorder."""
    # isinstance with a protocol compares all its members by name, each time anew.
    return hasattr(templates, "written")


class Choice:
    """Feeds one choice's batches through its row and chain (it is the row's Tap).

    A choice is *over* once nothing more goes to the client (its Finish is due), and *ended* once the engine has said
    so too. ``tokens`` counts the output ids the client's usage includes. ``rows`` chooses log probabilities, where they
    were asked for, ``thought`` counts ids of reasoning, ``spelled`` looks for markers that came without their tokens,
    and ``signing`` signs reasoning. With ``silent`` the output is thrown away, because only the prompt was asked about.
    With ``keep_text``, ``text`` and ``ids`` are in the end what the engine wrote, before any parsing.
    """

    def __init__(
        self,
        table: StreamTable,
        spec: RowSpec,
        decoder: Decoder,
        chain: Parsing,
        stops: Stops,
        rows: Rows | None = None,
        thought: Thought | None = None,
        spelled: Spelled | None = None,
        *,
        silent: bool = False,
        keep_text: bool = False,
        signing: Signing | None = None,
    ) -> None:
        self.index = spec.choice
        self.over = False
        self.ended = False
        self.overrun = False
        self.tokens = 0
        self.spec_accepted_tokens = 0
        self.spec_draft_tokens = 0
        self.text = ""
        self.ids: list[int] = []
        # What engines have counted that broke off before the present one.
        self._earlier = (0, 0, 0)
        self._told = 0  # ids of reasoning, by the engine's own count
        self._thought = thought
        self._spelled = spelled
        self._chain = chain
        self._stops = stops
        self._rows = rows
        self._fed: Sequence[TokenLogprobs] = ()
        self._silent = silent
        self._keep_text = keep_text
        self._signing = signing
        self._table = table
        self._direct = False
        self._way: tuple[Sink, Templates] | None = None
        # Who is told what goes direct, as what, and the characters of the row's text that are dealt with.
        self._recorder: Recorder | None = None
        self._wait = Wait("text")
        self._seen = 0
        self._reason = ""
        self._matched: int | str | None = None
        self._unknown_stop = False
        self._reported = False
        self._events: list[Event] = []
        self._row: int | None = table.open(spec, decoder, self)

    @property
    def plain(self) -> bool:
        """True when no parser needs to see the text."""
        return self._chain.plain

    @property
    def ends_early(self) -> bool:
        """True when its parser may find that nothing more is wanted, and the engine has to hear of it at once."""
        return self._chain.ends_early

    @property
    def reasoning_tokens(self) -> int:
        """Ids of reasoning: as the engine counts them, or as its markers tell where it does not."""
        return self._told if self._thought is None else max(self._told, self._thought.count)

    @property
    def row(self) -> int | None:
        """Handle of the choice's row; None once it is closed, and where the output is thrown away."""
        return None if self._silent else self._row

    @property
    def runs_on(self) -> bool:
        """True when the choice is over but the engine goes on with it, not knowing what stopped it."""
        return self.over and not self.ended and (self._unknown_stop or self.overrun)

    @property
    def taken(self) -> Sequence[int]:
        """All ids the choice has taken so far, while it runs."""
        assert self._row is not None
        return self._table.ids(self._row)

    def moved(self) -> None:
        """Another engine goes on, and its counts begin at zero."""
        self._earlier = (self._told, self.spec_accepted_tokens, self.spec_draft_tokens)

    def direct(self, sink: Sink, template: ByteTemplate, templates: Templates) -> None:
        """Send the text straight to ``sink`` by ``template``; from now on events only tell of the end."""
        assert self._row is not None
        self._direct = True
        self._recorder = templates if records(templates) else None
        self._table.direct(self._row, sink, template, templates.counter)

    def follow(self, sink: Sink, templates: Templates) -> None:
        """Let text go to ``sink`` past the parser from now on, wherever that can wait (``go``)."""
        self._way = sink, templates
        self._recorder = templates if records(templates) else None

    def go(self) -> bool:
        """Go direct, if the parser can wait and the dialect has a template for it; between two pulls, when everything
        that was parsed has been written. Returns whether the text goes direct."""
        if self._way is None or self._direct or self.over or self._row is None or self._events:
            return self._direct
        wait = self._chain.wait()
        if wait is None:
            return False
        sink, templates = self._way
        template = NOTHING if wait.kind == "held" else templates.template(self.index, wait.kind, wait.call)
        if template is not None:
            self._direct = True
            self._wait = wait
            self._table.direct(self._row, sink, template, templates.counter, wait)
        return self._direct

    def on_output(self, row: int, output: RowOutput) -> None:
        """The row's Tap: new text, or the row's own stop."""
        if output.stopped and not self.over:
            self.over = True
            self._reason = "stop"
            self._matched = output.matched
            # A stop string that is one token has been sent to the engine, which ends on it by itself.
            known = bool(output.ids) and output.ids[-1] in self._stops.strings
            self._unknown_stop = isinstance(output.matched, str) and not known
        if self._rows is not None:
            output.logprobs = self._rows.take(output, self._fed)
        if self._recorder is not None or self._signing is not None:
            self._record(row, output.text)
        if self._way is not None:
            self._direct = False
        if not self._direct:
            self.tokens += len(output.ids)
            if self._thought is not None and self._way is None:
                self._thought.take(output.ids)
            self._events += self._signed(self._chain.feed(output))
            if self._chain.enough and not self.over:
                self.over = self._unknown_stop = True
                self._reason = "stop"

    def _record(self, row: int, tapped: str) -> None:
        """Tell what has gone direct; ``tapped`` is what of the row's text came after that."""
        tail = len(tapped.replace(SEAL, ""))
        if not self._direct:
            self._seen += tail
            return
        text = self._table.text(row)
        told, self._seen = text[self._seen : len(text) - tail], len(text)
        wait = self._wait
        if not told or wait.kind == "held":
            return
        if self._signing is not None and wait.kind == "reasoning":
            self._signing.passed(told)
        if self._recorder is not None:
            shown = sse.escape(told).decode() if wait.quoted else told
            self._recorder.written(self.index, wait.kind, wait.call, shown)

    def feed(self, batch: TokenBatch) -> list[Event]:
        """Take one batch; returns what the client gets for it, its Finish excepted (see ``finish``).

        Raises:
            GatewayError: ``worker_stream_failed`` when the engine gave the choice up.
        """
        if batch.reasoning_tokens or batch.spec_draft_tokens or batch.spec_accepted_tokens:
            self.learn(batch)
        if self.over:
            self.overrun = self.overrun or (bool(batch.ids) and batch.finish is None)
        elif (batch.ids or batch.logprobs) and not self._silent:
            self._feed_row(batch.ids, batch.logprobs)
        if batch.finish in ("abort", "error"):
            raise GatewayError("worker_stream_failed", "the engine gave the generation up", worker_fault=True)
        if batch.finish is not None:
            self.end(batch.finish, batch.matched_stop)
        return self._take()

    def learn(self, batch: TokenBatch) -> None:
        """Note the engine's own counts, which only grow."""
        reasoning, accepted, draft = self._earlier
        self._told = max(self._told, reasoning + batch.reasoning_tokens)
        self.spec_accepted_tokens = max(self.spec_accepted_tokens, accepted + batch.spec_accepted_tokens)
        self.spec_draft_tokens = max(self.spec_draft_tokens, draft + batch.spec_draft_tokens)

    def end(self, reason: str, matched: int | str | None = None) -> None:
        """The engine has ended the choice. A stop that the row found comes first, also one in its last held text."""
        self.ended = True
        if not self.over:
            self._flush()
        if self.over:
            if self._matched is None and reason == "stop":
                self._matched = matched
            return
        self.over = True
        self._reason = "length" if self._silent else reason
        self._matched = None if self._silent else matched

    def finish(self) -> list[Event]:
        """What is due once the choice is over: held text of its parsers, then Finish. Empty before and after."""
        if not self.over or self._reported:
            return []
        self._reported = True
        events = self._take() + self._signed(self._chain.finish(self._reason, self._stops.matched(self._matched)))
        self.close()
        return events

    def broken(self) -> list[Event]:
        """Text that was still held when the stream broke; no Finish is invented for it."""
        if self._reported or self.over:
            return []
        self._flush()
        if self._row is not None and (self._direct or self._way is not None):
            # The tap has not seen what went direct, and whoever reports the break asks before the row is closed.
            self.tokens = len(self._table.ids(self._row))
        held = self._take() + self._chain.finish("abort", None)
        return [event for event in held if not isinstance(event, Finish)]

    def close(self) -> None:
        """Close the row. Idempotent."""
        if self._row is not None:
            row, self._row = self._row, None
            if self._direct or self._way is not None:
                # The tap has not seen what went direct.
                ids = self._table.ids(row)
                self.tokens = len(ids)
                if self._thought is not None:
                    self._thought.take(ids)
            if self._spelled is not None:
                self._spelled.look(self._table.text(row), self._table.ids(row))
            if self._keep_text:
                self.text = self._table.text(row)
                self.ids = list(self._table.ids(row))
            self._table.close(row)

    def _feed_row(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None) -> None:
        assert self._row is not None
        self._fed = logprobs or ()
        self._table.feed(self._row, ids, logprobs)

    def _flush(self) -> None:
        assert self._row is not None
        self._table.finish(self._row)

    def _signed(self, events: list[Event]) -> list[Event]:
        return events if self._signing is None else self._signing.signed(events)

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events
