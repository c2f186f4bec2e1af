"""One generation, from a decoded request with one prompt to its last event, on a ``tokens`` backend.

``start`` does everything that may still be answered with a plain HTTP error; iterating yields the events of one engine
pull at a time; ``aclose`` gives everything back, whatever happened. Nothing is read from the engine while nobody
iterates, so a slow client pauses its own stream only.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any

from smg.core.backends import feeds_rows
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event, Failure, Usage
from smg.core.request import GenerationRequest
from smg.core.stream import Decoder, Sink
from smg.fleet.breaker import Outcome
from smg.fleet.records import WILDCARD
from smg.pipeline.choice import Choice, Templates
from smg.pipeline.dispatch import Dispatcher, Running
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.opening import open_choices
from smg.pipeline.plan import Plan
from smg.pipeline.portions import portion
from smg.pipeline.preparing import enter, make_plan
from smg.pipeline.prompt import PromptReport
from smg.pipeline.resume import left, obstacle, rest, rest_query
from smg.pipeline.services import Services
from smg.pipeline.signing import signing, verified
from smg.pipeline.silence import Watch as Silence
from smg.pipeline.tally import Tally
from smg.pipeline.watch import Watch, Watched, watch
from smg.routing.admission import AdmissionLease
from smg.routing.fleet_router import outcome_of
from smg.routing.tenants import FREE


class Generation:
    """Life of one generation. Use: ``start``, maybe ``direct``, ``async for``, and always ``aclose``.

    Its choices are numbered from ``first`` on. Who runs several generations for one client request calls ``prepare``
    and ``dispatch`` instead of ``start``, with one admission for all in between.
    """

    def __init__(self, services: Services, ctx: RequestContext, request: GenerationRequest, first: int = 0) -> None:
        self._services = services
        self._ctx = ctx
        self._request = request
        self._first = first
        transport = services.settings.fleet.engine_transport
        self._facts = Facts(services.metrics, ctx, streaming=request.stream, transport=transport)
        # What keeps another worker from going on, once one has broken off.
        self._why = ""
        self._interrupt = Interrupt(ctx)
        self._plan: Plan | None = None
        self._prompt = PromptReport() if request.logprobs is not None and request.logprobs.prompt else None
        self._admitted: AdmissionLease | None = None
        self._charge = FREE
        self._dispatcher: Dispatcher | None = None
        self._running: Running | None = None
        self._silence: Silence | None = None
        self._pulls = 0
        self._choices: list[Choice] = []
        self._watch: Watch | None = None
        self._tally = Tally()
        self._fed = False
        self._events: list[Event] = []
        self._direct = False
        self._source_over = False
        self._done = False
        self._closed = False
        self._outcome: Outcome = "ok"
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _known(self) -> Plan:
        assert self._plan is not None, "prepare() comes first"
        return self._plan

    @property
    def model(self) -> str:
        """Canonical id of the model, known after ``prepare``; as asked for where any name does."""
        model = self._known.model.id
        return self._request.model if model == WILDCARD else model

    @property
    def done(self) -> bool:
        """True once the last events have been returned."""
        return self._done

    @property
    def usage(self) -> Usage:
        """The counts so far."""
        return self._tally.usage(0 if self._plan is None else len(self._plan.prepared.ids))

    @property
    def decoder(self) -> Decoder:
        """Id to bytes table of the model, known after ``prepare``."""
        return self._known.decoder

    def start(self) -> Coroutine[Any, Any, None]:
        """Resolve, prepare, admit, select, open, and wait for the first batch.

        Raises:
            GatewayError: whatever is wrong; nothing has been sent and everything is given back.
        """
        return self._guard(self._start())

    async def prepare(self) -> None:
        """Find the model and turn the prompt into ids. Raises GatewayError, as ``start`` does."""
        await self._guard(self._prepare())

    async def dispatch(self) -> None:
        """Find a worker and wait for the first batch. Raises GatewayError, as ``start`` does."""
        await self._guard(self._dispatch())

    async def _guard(self, work: Awaitable[None]) -> None:
        """Do ``work``; give everything back when it fails."""
        try:
            await work
        except GatewayError as error:
            self._name(error)
            self._facts.failed(error.code)
            await self.aclose("error")
            raise
        except BaseException:
            await self.aclose("client_disconnect")
            raise

    def _name(self, error: GatewayError) -> None:
        """Say which field an engine could not keep to: it does not know where the body has its constraint."""
        if error.code == "constraint_failed" and error.param is None:
            error.param = self._request.constraint_path if self._request.constraint is not None else "tools"

    async def _prepare(self) -> None:
        self._arm()
        self._request = await verified(self._services.signer, self._ctx, self._request)
        self._plan = await make_plan(self._services, self._interrupt, self._facts, self._request)

    async def _start(self) -> None:
        self._charge = enter(self._services, self._ctx, self._facts, self._request.model)
        await self._prepare()
        self._charge.take(len(self._known.prepared.ids))
        admission = self._services.admission
        self._admitted = admission.at_once(self._ctx) or await self._interrupt.run(admission.acquire(self._ctx))
        await self._dispatch()

    async def _dispatch(self) -> None:
        request, plan = self._request, self._known
        self._dispatcher = Dispatcher(self._services, self._ctx, self._interrupt, self._facts)
        self._running = await self._dispatcher.run(
            plan.query(request), lambda attempt: plan.engine_request(self._ctx, request, attempt)
        )
        if plan.media is not None:
            # Megabytes for each image, which nobody needs while the answer is generated.
            self._services.media.released(plan.media)
            plan.media = None
        self._facts.first_token()
        self._watch = watch(self._services, self._ctx, plan.reading, self._facts)
        sign, watched = partial(signing, self._services.signer, self._ctx, request), self._watch is not None
        self._choices = open_choices(self._services.table, plan, request, self._first, sign, keep_text=watched)
        self._tally.choices = self._choices
        self._silence = self._services.silences.watch(self._running.lease.worker, self._interrupt, self._progress)
        if not request.stream and not any(choice.ends_early for choice in self._choices):
            self._let_feed()
        # Some dialects begin an answer with the prompt's counts.
        for batch in self._running.first:
            self._tally.take(batch)

    def direct(self, sink: Sink, encoder: Templates) -> bool:
        """Let all text go straight to ``sink``, if no choice needs Python per delta; call it before iterating.

        The sink then gets a delta's bytes while a pull is fed, that is before the pull's events are returned. Choices
        with a parser go that way too, but only while it can wait; the answer is False then, since what comes first
        comes as an event.
        """
        if self._request.logprobs is not None:
            return False
        if not all(choice.plain for choice in self._choices):
            if self._watch is None or not self._watch.wants_events:
                templates = encoder if self._watch is None else Watched(encoder, self._watch)
                for choice in self._choices:
                    choice.follow(sink, templates)
            return False
        texts = [encoder.template(choice.index) for choice in self._choices]
        if any(template is None for template in texts):
            return False
        for choice, template in zip(self._choices, texts, strict=True):
            assert template is not None
            choice.direct(sink, template, encoder)
        self._direct = True
        self._let_feed()
        return True

    def _go(self) -> None:
        """Let the choices go direct whose parsers can wait. The source may feed them once all do."""
        direct = [choice.go() for choice in self._choices]
        if all(direct) and not self._fed:
            self._let_feed()

    def _let_feed(self) -> None:
        """Let the source feed the rows by itself, if it can, where nobody waits for their text in between."""
        assert self._running is not None
        self._fed = True
        rows = [choice.row for choice in self._choices if choice.row is not None]
        if len(rows) == len(self._choices) and feeds_rows(self._running.source):
            self._running.source.feed_rows(self._services.table, rows)

    def __aiter__(self) -> "Generation":
        return self

    async def __anext__(self) -> list[Event]:
        """Events of the next pull. The last ones are each choice's Finish and one Usage, or one Failure."""
        if self._done:
            raise StopAsyncIteration
        assert self._running is not None, "start() comes first"
        self._go()
        try:
            batches = await self._pull(self._running)
            self._feed(batches)
        except GatewayError as error:
            failure = await self._resume(error)
            if failure is not None:
                self._broken(failure)
        events, self._events = self._events, []
        return events

    async def _pull(self, running: Running) -> list[TokenBatch]:
        if not running.first:
            running.first = await self._next(running)
        elif self._pulls:
            # Between two portions of one read it is the turn of others.
            await asyncio.sleep(0)
        batches, running.first = portion(running.first)
        return batches

    async def _next(self, running: Running) -> list[TokenBatch]:
        self._pulls += 1
        try:
            return await self._interrupt.run(running.source.next())
        except BaseException as error:
            if isinstance(error, GatewayError):
                # A source that failed by itself is over: there is nothing left to abort.
                self._source_over = not self._ctx.cancel and not self._interrupt.failed
            self._tally.hear_out(running.source)
            raise

    def _progress(self) -> int:
        """Changes with everything that comes from the engine."""
        return self._pulls + sum(len(choice.taken) for choice in self._choices if choice.row is not None)

    async def _resume(self, error: GatewayError) -> GatewayError | None:
        """Let another worker go on where this one broke off with ``error``; returns what to tell if none does."""
        assert self._running is not None
        request, choices = self._request, self._choices
        bound = self._known.reading.output.constraint
        allowed, paired = self._services.settings.routing.resume, self._running.lease.prefill is not None
        self._why = obstacle(request, bound, error, allowed=allowed, paired=paired)
        if self._why or self._ctx.cancel or any(choice.over for choice in choices):
            return error
        taken, died = list(choices[0].taken), self._running
        self._unwatch()
        if not self._source_over:
            await asyncio.shield(died.source.cancel("error"))
            self._source_over = True
        if not left(self._known.limits, taken):
            self._outcome = outcome_of(error)
            choices[0].end("length")
            self._settle()
            return None
        try:
            self._running = await self._dispatch_rest(error, died, taken)
        except GatewayError as second:
            self._why = (
                "no other worker, or no attempt, is left" if second is error else f"nor did another: {second.message}"
            )
            self._facts.resumed(error, died.lease.worker.id, len(taken), well=False)
            return second if self._ctx.cancel else error
        self._facts.resumed(error, died.lease.worker.id, len(taken), well=True)
        self._silence = self._services.silences.watch(self._running.lease.worker, self._interrupt, self._progress)
        self._source_over = False
        self._tally.moved()
        choices[0].moved()
        if self._fed:
            self._let_feed()
        return None

    async def _dispatch_rest(self, error: GatewayError, died: Running, taken: list[int]) -> Running:
        """Begin the rest of the generation, after the ids ``taken``, elsewhere. Raises GatewayError."""
        assert self._dispatcher is not None
        plan, request = self._known, self._request
        query = rest_query(plan.query(request), request.sampling, taken)
        return await self._dispatcher.resume(
            error, died.lease, query, lambda attempt: rest(plan.engine_request(self._ctx, request, attempt), taken)
        )

    def _feed(self, batches: list[TokenBatch]) -> None:
        for batch in batches:
            if not 0 <= batch.index < len(self._choices):
                raise GatewayError("worker_stream_failed", "the engine sent an unknown choice", worker_fault=True)
            self._tally.take(batch)
            self._feed_choice(self._choices[batch.index], batch)
        if not batches:
            # The source vouches for the end: what it has not closed has stopped by itself (field case OA-02).
            for choice in self._choices:
                choice.end("stop")
        self._settle()

    def _settle(self) -> None:
        """Finish the choices that are over, and say how far the whole is."""
        # After all text of the pull, so that direct and tapped streams have the same order.
        for choice in self._choices:
            finished = choice.finish()
            if finished:
                self._report(choice, finished, last=True)
                if self._watch is not None:
                    self._watch.finished(choice, finished[-1])
        self._done = self._complete()
        if self._done or not self._direct:
            self._events.append(self.usage)

    def _feed_choice(self, choice: Choice, batch: TokenBatch) -> None:
        if self._prompt is not None:
            self._prompt.learn(batch.prompt_logprobs)
        self._report(choice, choice.feed(batch))

    def _report(self, choice: Choice, events: list[Event], *, last: bool = False) -> None:
        """Put out what came of ``choice``; ``last`` when no more will."""
        if self._watch is not None:
            self._watch.take(choice.index, events)
        if self._prompt is not None:
            events = self._prompt.order(choice.index, events, last=last)
        self._events += events

    def _complete(self) -> bool:
        """All choices are over, and the engine has ended too or has to be told so."""
        ended = True
        for choice in self._choices:
            if not choice.over:
                return False
            ended = ended and choice.ended
        return ended or any(choice.runs_on for choice in self._choices)

    def _broken(self, error: GatewayError) -> None:
        """The stream broke: give out what is held, then the Failure (field case MS-10)."""
        self._done = True
        self._outcome = "cancelled" if self._ctx.cancel else outcome_of(error)
        for choice in self._choices:
            self._report(choice, choice.finish() if choice.over else choice.broken(), last=True)
        if all(choice.over for choice in self._choices):
            # The client has everything; only the engine's own end was missing.
            self._events.append(self.usage)
            return
        if not self._ctx.cancel and self._running is not None:
            self._facts.broken(error, self._running.lease.worker.id, self.usage.completion_tokens, self._why)
        self._name(error)
        self._facts.failed(error.code)
        self._events.append(Failure(error.code, error.message, error.status, error.retry_after, error.param))

    async def aclose(self, reason: str = "stop") -> None:
        """Give everything back; tell the engine to stop unless it has ended by itself. Idempotent, never raises.

        ``reason`` is why the consumer leaves (``client_disconnect``, ``error``, …).
        """
        if self._closed:
            return
        self._closed = True
        whole = self._done
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch()
        self._interrupt.close()
        for choice in self._choices:
            choice.close()
        if self._admitted is not None:
            self._admitted.release()
        if self._running is None:
            return
        usage = self.usage
        self._facts.closed(usage)
        self._charge.settle(usage)
        if self._watch is not None:
            plan = self._known
            self._watch.closed(self._ctx, plan.text.tokenizer, plan.model.id, plan.prepared.ids, self._choices)
        self._services.router.release(self._running.lease, self._outcome if whole else "cancelled")
        if not self._source_over and not (self._choices and all(choice.ended for choice in self._choices)):
            why = self._ctx.cancel.reason or ("stop" if whole and self._outcome == "ok" else reason)
            self._facts.aborted(why)
            # Shielded: the abort must reach the engine also when the task that closes is itself cancelled.
            await asyncio.shield(self._running.source.cancel(why))

    def _unwatch(self) -> None:
        if self._silence is not None:
            self._services.silences.forget(self._silence)
            self._silence = None

    def _arm(self) -> None:
        remaining = self._ctx.remaining()
        if remaining is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(remaining, self._ctx.cancel.cancel, "deadline")
            # As long as the generation, and so longer than what it asks engines.
            self._ctx.timed = True
