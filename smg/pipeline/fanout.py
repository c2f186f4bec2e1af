"""One client request with several prompts: a generation for each, merged into one stream of events.

All prompts are made into ids before any engine hears of the request, and one admission counts for all. The first
failure is the failure of the whole.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Protocol

from msgspec.structs import replace

from smg.core.backends import BackendKind
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event, Failure, Usage
from smg.core.request import GenerationRequest
from smg.core.stream import Decoder, Sink
from smg.pipeline.choice import Templates
from smg.pipeline.facts import Facts
from smg.pipeline.generation import Generation
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.preparing import enter
from smg.pipeline.remote import Remote
from smg.pipeline.services import Services
from smg.routing.admission import AdmissionLease
from smg.routing.tenants import FREE

# Prompts that are encoded between two looks at other requests.
_AT_ONCE = 16


class Generating(Protocol):
    """What the handlers of dialects use of a generation; see ``generation.Generation``."""

    @property
    def model(self) -> str: ...
    @property
    def done(self) -> bool: ...
    @property
    def decoder(self) -> Decoder: ...
    @property
    def usage(self) -> Usage: ...

    async def start(self) -> None: ...

    def direct(self, sink: Sink, encoder: Templates) -> bool: ...

    def __aiter__(self) -> AsyncIterator[list[Event]]: ...

    async def aclose(self, reason: str = "stop") -> None: ...


def generate(
    services: Services, ctx: RequestContext, request: GenerationRequest, kind: BackendKind = "tokens"
) -> Generating:
    """Make what generates ``request`` on a backend of this kind (not ``raw``), however many prompts it has."""
    if kind == "events":
        return Remote(services, ctx, request)
    return Fanout(services, ctx, request) if request.prompts else Generation(services, ctx, request)


class Fanout:
    """The generations of all prompts, used like one."""

    def __init__(self, services: Services, ctx: RequestContext, request: GenerationRequest) -> None:
        self._services = services
        self._ctx = ctx
        self._interrupt = Interrupt(ctx)
        self._facts = Facts(services.metrics, ctx, streaming=request.stream)
        self._asked = request.model
        self._parts = [
            Generation(services, ctx, _part(request, number), number * request.n)
            for number in range(len(request.prompts))
        ]
        self._admitted: AdmissionLease | None = None
        self._charge = FREE
        self._direct = False
        self._done = False
        self._failed = False
        # Generations to pull from, pulls that run, pulls that nobody has looked at yet, and what tells of the next one.
        self._idle = list(self._parts)
        self._pulls: dict[asyncio.Task[list[Event]], Generation] = {}
        self._ended: list[asyncio.Task[list[Event]]] = []
        self._wake = asyncio.Event()

    @property
    def usage(self) -> Usage:
        """The counts of all prompts together, and of each."""
        parts = tuple(part.usage for part in self._parts)
        return Usage(
            prompt_tokens=sum(part.prompt_tokens for part in parts),
            completion_tokens=sum(part.completion_tokens for part in parts),
            cached_tokens=sum(part.cached_tokens for part in parts),
            reasoning_tokens=sum(part.reasoning_tokens for part in parts),
            spec_accepted_tokens=sum(part.spec_accepted_tokens for part in parts),
            spec_draft_tokens=sum(part.spec_draft_tokens for part in parts),
            weight_version=parts[0].weight_version,
            parts=parts,
        )

    @property
    def model(self) -> str:
        return self._parts[0].model

    @property
    def done(self) -> bool:
        return self._done

    @property
    def decoder(self) -> Decoder:
        return self._parts[0].decoder

    async def start(self) -> None:
        """Start all generations and wait until each has its first batch.

        Raises:
            GatewayError: the first failure; nothing has been sent and everything is given back.
        """
        try:
            self._charge = enter(self._services, self._ctx, self._facts, self._asked)
            for number, part in enumerate(self._parts):
                await part.prepare()
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._charge.take(self.usage.prompt_tokens)
            self._admitted = await self._interrupt.run(self._services.admission.acquire(self._ctx))
            await _together(part.dispatch() for part in self._parts)
        except BaseException as error:
            if isinstance(error, GatewayError) and "error" not in self._ctx.notes:
                # Not one of the prompts has failed, but what they have in common.
                self._facts.failed(error.code)
            await self.aclose("error" if isinstance(error, GatewayError) else "client_disconnect")
            raise

    def direct(self, sink: Sink, encoder: Templates) -> bool:
        """As ``Generation.direct``, for all generations or none: they are alike."""
        direct = [part.direct(sink, encoder) for part in self._parts]
        self._direct = all(direct)
        return self._direct

    def __aiter__(self) -> "Fanout":
        return self

    async def __anext__(self) -> list[Event]:
        """Events of whatever generations have brought any; see ``Generation.__anext__``."""
        if self._done:
            raise StopAsyncIteration
        idle, self._idle = self._idle, []
        for part in idle:
            self._pull(part)
        await self._wake.wait()
        return self._take()

    def _pull(self, part: Generation) -> None:
        task = asyncio.get_running_loop().create_task(part.__anext__())
        self._pulls[task] = part
        task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[list[Event]]) -> None:
        self._ended.append(task)
        self._wake.set()

    def _take(self) -> list[Event]:
        self._wake.clear()
        ended, self._ended = self._ended, []
        events: list[Event] = []
        for task in ended:
            part = self._pulls.pop(task)
            if not part.done:
                self._idle.append(part)
            for event in task.result():
                if isinstance(event, Failure):
                    self._done = self._failed = True
                    return [*events, event]
                if not isinstance(event, Usage):
                    events.append(event)
        self._done = not self._idle and not self._pulls
        if self._done or not self._direct:
            events.append(self.usage)
        return events

    async def aclose(self, reason: str = "stop") -> None:
        """Close all generations, those that another one's failure cut off with reason ``error``.

        Idempotent, never raises.
        """
        if self._failed and reason == "stop":
            reason = "error"
        self._interrupt.close()
        pulls, self._pulls = list(self._pulls), {}
        for task in pulls:
            task.cancel()
        # Shielded: every engine must hear of it also when the task that closes is itself cancelled.
        await asyncio.shield(self._close(pulls, reason))

    async def _close(self, pulls: Iterable[asyncio.Task[list[Event]]], reason: str) -> None:
        await asyncio.gather(*pulls, return_exceptions=True)
        await asyncio.gather(*(part.aclose(reason) for part in self._parts))
        if self._admitted is not None:
            self._admitted.release()
            self._charge.settle(self.usage)


def _part(request: GenerationRequest, number: int) -> GenerationRequest:
    """The request for one prompt."""
    prompt = request.prompts[number]
    path = f"{request.prompt_path}[{number}]"
    request = replace(request, prompts=[], prompt_path=path)
    if request.attachments:
        at = f"{request.attachments_path}[{number}]"
        request = replace(request, attachments=[request.attachments[number]], attachments_path=at)
    return replace(request, prompt_text=prompt) if isinstance(prompt, str) else replace(request, prompt_ids=prompt)


async def _together(works: Iterable[Awaitable[None]]) -> None:
    """Do all at once; when one fails the others are cancelled, and waited for."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
