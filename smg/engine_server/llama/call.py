"""One Generate call: events of its jobs in, messages of the vLLM contract out (spec engine-contract 2.1)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.llama.job import End, Event, Failed, Job, Token
from smg.engine_server.llama.sampling import Candidates


class EngineFailure(Exception):
    """A sequence could not go on; the call as a whole fails. ``constraint``: its constraint could not be followed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.constraint = failed.constraint


class Call:
    """Collects what the scheduler reports. ``sink`` is for the jobs, on the event loop's thread.

    Everything that has arrived when the client takes the next message travels together, so a slow client gets fewer,
    larger chunks.
    """

    def __init__(self, request_id: str, stream: bool) -> None:
        self.id = request_id
        self.jobs: Sequence[Job] = ()
        self._stream = stream
        self._events: asyncio.Queue[tuple[Job, Event]] = asyncio.Queue()

    def sink(self, job: Job, event: Event) -> None:
        self._events.put_nowait((job, event))

    async def messages(self) -> AsyncIterator[Any]:
        """Yield GenerateResponses until every choice has its Complete. Raises EngineFailure."""
        open_choices = len(self.jobs)
        fresh: dict[Job, list[Token]] = {}
        every: dict[Job, list[Token]] = {job: [] for job in self.jobs}
        while open_choices:
            for job, event in await self._arrived():
                if isinstance(event, Failed):
                    raise EngineFailure(event)
                if isinstance(event, Token):
                    fresh.setdefault(job, []).append(event)
                    continue
                open_choices -= 1
                delta = fresh.pop(job, [])
                every[job] += delta
                if self._stream and delta:
                    yield chunk(job, delta, first=len(delta) == len(every[job]))
                yield complete(job, delta if self._stream else every[job], event, scores=not self._stream)
            for job, delta in fresh.items():
                every[job] += delta
                if self._stream:
                    yield chunk(job, delta, first=len(delta) == len(every[job]))
            fresh.clear()

    async def _arrived(self) -> list[tuple[Job, Event]]:
        out = [await self._events.get()]
        while not self._events.empty():
            out.append(self._events.get_nowait())
        return out


def chunk(job: Job, delta: Sequence[Token], *, first: bool) -> Any:
    """A stream chunk: new ids only, and their number (vLLM's counts are deltas).

    The ``first`` brings the prompt's log probabilities.
    """
    message = pb.GenerateStreamChunk(
        token_ids=[token.id for token in delta],
        prompt_tokens=len(job.prompt),
        completion_tokens=len(delta),
        cached_tokens=job.cached,
        index=job.index,
    )
    _add_logprobs(message, job, delta, scores=first)
    return pb.GenerateResponse(chunk=message)


def complete(job: Job, tokens: Sequence[Token], end: End, *, scores: bool) -> Any:
    """The Complete: ``tokens`` are the last delta of a stream (repeated, as vLLM does), or all of them."""
    message = pb.GenerateComplete(
        output_ids=[token.id for token in tokens],
        finish_reason=end.reason,
        prompt_tokens=len(job.prompt),
        completion_tokens=len(tokens),
        cached_tokens=job.cached,
        index=job.index,
    )
    if end.matched is not None:
        message.matched_token_id = end.matched
    _add_logprobs(message, job, tokens, scores=scores)
    return pb.GenerateResponse(complete=message)


def _add_logprobs(message: Any, job: Job, tokens: Sequence[Token], *, scores: bool) -> None:
    if job.candidates is not None:
        output = message.output_logprobs
        output.SetInParent()
        for token in tokens:
            row = token.logprobs or _NOTHING
            output.token_logprobs.append(row.value)
            output.token_ids.append(token.id)
            output.top_logprobs.add(values=row.values, token_ids=row.ids)
    if scores and job.scores:
        prompt = message.input_logprobs
        for token_id, score in zip(job.prompt, job.scores, strict=False):
            prompt.token_logprobs.add(value=None if score is None else score.value)
            prompt.token_ids.append(token_id)
            prompt.top_logprobs.add(values=score.values if score else (), token_ids=score.ids if score else ())


_NOTHING = Candidates(0.0, [], [])
