"""One generation, from a decoded request to its last event, on a ``tokens`` backend.

``start`` does everything that may still be answered with a plain HTTP error; iterating yields the events of one engine
pull at a time; ``aclose`` gives everything back, whatever happened. Nothing is read from the engine while nobody
iterates, so a slow client pauses its own stream only.
"""

import asyncio
from typing import Protocol

from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event, Failure, Usage
from smg.core.ids import dispatch_id
from smg.core.request import GenerationRequest
from smg.core.stream import ByteTemplate, Counter, Decoder, Marker, RowSpec, Sink
from smg.fleet.records import ModelRecord
from smg.parsing.base import Start
from smg.parsing.choose import choose
from smg.pipeline.choice import Choice
from smg.pipeline.dispatch import Dispatcher, Running
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.limits import fit, refuse_media, with_defaults
from smg.pipeline.services import Services
from smg.pipeline.stops import Stops, share_out
from smg.routing.admission import AdmissionLease
from smg.routing.fleet_router import outcome_of
from smg.routing.models import resolve
from smg.routing.router import Query
from smg.text.prepare import Prepared, prepare
from smg.text.registry import TextModel

# Seconds a request waits for a tokenizer that its process is loading.
LOAD_PATIENCE = 10.0


class Templates(Protocol):
    """The part of a dialect's encoder that direct rows need."""

    counter: Counter

    def template(self, choice: int) -> ByteTemplate | None: ...


class Generation:
    """Life of one generation. Use: ``start``, maybe ``direct``, ``async for``, and always ``aclose``."""

    def __init__(self, services: Services, ctx: RequestContext, request: GenerationRequest) -> None:
        self.usage = Usage()
        self._services = services
        self._ctx = ctx
        self._request = request
        self._facts = Facts(services.metrics, ctx, streaming=request.stream)
        self._interrupt = Interrupt(ctx)
        self._model: ModelRecord | None = None
        self._text: TextModel | None = None
        self._admitted: AdmissionLease | None = None
        self._running: Running | None = None
        self._choices: list[Choice] = []
        self._cached = 0
        self._events: list[Event] = []
        self._direct = False
        self._source_over = False
        self._done = False
        self._closed = False
        self._outcome = "ok"
        self._timer: asyncio.TimerHandle | None = None

    @property
    def model(self) -> str:
        """Canonical id of the model, known after ``start``."""
        assert self._model is not None
        return self._model.id

    @property
    def done(self) -> bool:
        """True once the last events have been returned."""
        return self._done

    @property
    def decoder(self) -> Decoder:
        """Id to bytes table of the model, known after ``start``."""
        assert self._text is not None
        return self._text.tokenizer.decoder

    async def start(self) -> None:
        """Resolve, prepare, admit, select, open, and wait for the first batch.

        Raises:
            GatewayError: whatever is wrong; nothing has been sent and everything is given back.
        """
        try:
            self._arm()
            self._model = resolve(self._services.view.snapshot(), self._request.model)
            self._facts.model(self._model.id)
            refuse_media(self._request)
            self._text = await self._load(self._model)
            prepared = await self._interrupt.run(prepare(self._text, self._request))
            await self._run(self._model, self._text, prepared)
        except GatewayError as error:
            self._facts.failed(error.code)
            await self.aclose("error")
            raise
        except BaseException:
            await self.aclose("client_disconnect")
            raise

    async def _load(self, model: ModelRecord) -> TextModel:
        """The model's tokenizer and template. A process that has just started is still loading them: a moment's wait
        is better than a 503 that the next process would not have given."""
        load = self._services.texts.ensure(model)
        if load is not None and not load.done():
            await self._interrupt.run(asyncio.wait({asyncio.wrap_future(load)}, timeout=LOAD_PATIENCE))
        return self._services.texts.get(model)

    async def _run(self, model: ModelRecord, text: TextModel, prepared: Prepared) -> None:
        request = self._request
        limits = fit(model, request.limits, len(prepared.ids))
        stops = share_out(request.stop, model.eos_ids, text.tokenizer)
        self.usage = Usage(prompt_tokens=len(prepared.ids))

        def engine_request(attempt: int) -> EngineRequest:
            return EngineRequest(
                id=dispatch_id(self._ctx.request_id, attempt),
                ids=prepared.ids,
                sampling=with_defaults(model, request.sampling),
                limits=limits,
                stop_ids=stops.engine_ids,
                ignore_eos=request.stop.ignore_eos,
                n=request.n,
                logprobs=request.logprobs,
                constraint=request.constraint,
                dp_rank=request.hints.dp_rank,
                trace=self._ctx.trace.header() if self._ctx.trace else None,
            )

        self._admitted = await self._services.admission.acquire(self._ctx)
        query = Query(model.id, prepared.ids, hints=request.hints, tokens=len(prepared.ids))
        dispatcher = Dispatcher(self._services, self._ctx, self._interrupt, self._facts)
        self._running = await dispatcher.run(query, engine_request)
        self._facts.first_token()
        self._open(model, text, prepared, stops)

    def _open(self, model: ModelRecord, text: TextModel, prepared: Prepared, stops: Stops) -> None:
        """Open the rows and parsers of all choices."""
        request = self._request
        parsers = choose(self._services.settings.model, model.id, text.source.default, text.tokenizer.token_id)
        start = Start(prepared.prompt_tail, prepared.history, prepared.thinking, request.tools)
        for index in range(request.n):
            chain = parsers.chain(request, index, start)
            spec = RowSpec(
                choice=index,
                skip_special_tokens=request.skip_special_tokens,
                end_ids=stops.end_ids,
                eos_ids=stops.eos,
                stop_strings=request.stop.strings,
                stop_visible=request.stop.visible,
                markers=tuple(Marker(marker, text.tokenizer.token_id(marker)) for marker in chain.markers),
                continues=prepared.continues,
            )
            self._choices.append(Choice(self._services.table, spec, self.decoder, chain, stops))

    def direct(self, sink: Sink, encoder: Templates) -> bool:
        """Let all text go straight to ``sink``, if no choice needs Python per delta; call it before iterating.

        The sink then gets a delta's bytes while a pull is fed, that is before the pull's events are returned.
        """
        if self._request.logprobs is not None or not all(choice.plain for choice in self._choices):
            return False
        templates = [encoder.template(choice.index) for choice in self._choices]
        if any(template is None for template in templates):
            return False
        for choice, template in zip(self._choices, templates, strict=True):
            assert template is not None
            choice.direct(sink, template, encoder.counter)
        self._direct = True
        return True

    def __aiter__(self) -> "Generation":
        return self

    async def __anext__(self) -> list[Event]:
        """Events of the next pull. The last ones are each choice's Finish and one Usage, or one Failure."""
        if self._done:
            raise StopAsyncIteration
        assert self._running is not None, "start() comes first"
        try:
            batches = await self._pull(self._running)
            self._feed(batches)
        except GatewayError as error:
            self._broken(error)
        events, self._events = self._events, []
        return events

    async def _pull(self, running: Running) -> list[TokenBatch]:
        if running.first:
            batches, running.first = running.first, []
            return batches
        try:
            return await self._interrupt.run(running.source.next())
        except GatewayError:
            # A source that failed by itself is over: there is nothing left to abort.
            self._source_over = not self._ctx.cancel
            raise

    def _feed(self, batches: list[TokenBatch]) -> None:
        for batch in batches:
            if not 0 <= batch.index < len(self._choices):
                raise GatewayError("worker_stream_failed", "the engine sent an unknown choice", worker_fault=True)
            self._cached = max(self._cached, batch.cached_tokens)
            self._events += self._choices[batch.index].feed(batch)
        if not batches:
            # A clean end without a reason is a stop (field case OA-02).
            for choice in self._choices:
                choice.end("stop")
        # After all text of the pull, so that direct and tapped streams have the same order.
        for choice in self._choices:
            self._events += choice.finish()
        self._count()
        self._done = self._complete()
        if self._done or not self._direct:
            self._events.append(self.usage)

    def _complete(self) -> bool:
        """All choices are over, and the engine has ended too or has to be told so."""
        if not all(choice.over for choice in self._choices):
            return False
        return all(choice.ended for choice in self._choices) or any(choice.runs_on for choice in self._choices)

    def _broken(self, error: GatewayError) -> None:
        """The stream broke: give out what is held, then the Failure (field case MS-10)."""
        self._done = True
        self._outcome = "cancelled" if self._ctx.cancel else outcome_of(error)
        for choice in self._choices:
            self._events += choice.finish() if choice.over else choice.broken()
        self._count()
        if all(choice.over for choice in self._choices):
            # The client has everything; only the engine's own end was missing.
            self._events.append(self.usage)
            return
        self._facts.failed(error.code)
        self._events.append(Failure(error.code, error.message, error.status, error.retry_after, error.param))

    def _count(self) -> None:
        self.usage = Usage(
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=sum(choice.tokens for choice in self._choices),
            cached_tokens=self._cached,
            reasoning_tokens=sum(choice.reasoning_tokens for choice in self._choices),
            spec_accepted_tokens=sum(choice.spec_accepted_tokens for choice in self._choices),
            spec_draft_tokens=sum(choice.spec_draft_tokens for choice in self._choices),
        )

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
        self._interrupt.close()
        for choice in self._choices:
            choice.close()
        if self._admitted is not None:
            self._admitted.release()
        if self._running is None:
            return
        self._count()
        self._facts.closed(self.usage)
        self._services.router.release(self._running.lease, self._outcome if whole else "cancelled")
        if not self._source_over and not (self._choices and all(choice.ended for choice in self._choices)):
            why = self._ctx.cancel.reason or ("stop" if whole and self._outcome == "ok" else reason)
            self._facts.aborted(why)
            # Shielded: the abort must reach the engine also when the task that closes is itself cancelled.
            await asyncio.shield(self._running.source.cancel(why))

    def _arm(self) -> None:
        remaining = self._ctx.remaining()
        if remaining is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(remaining, self._ctx.cancel.cancel, "deadline")
