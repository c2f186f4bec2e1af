"""Passes a request on to a pair of HTTP engines, which meet in a room as SGLang's do (spec routing 5).

Both get the client's body with the meeting point in it, at the same time. The answer is the decode engine's; what the
other one says is read to its end, so that its failure is noticed when it happens.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from smg.core.backends import RawBody, RawResponse
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.http.prompt_logprobs import PromptLogprobs
from smg.engines.http.sse import Events
from smg.fleet.roles import meeting_point
from smg.pipeline.blame import VERDICT_SECS, blamed, gone, too_late
from smg.pipeline.facts import Facts
from smg.pipeline.pair_books import PairBooks
from smg.pipeline.raw_call import RawCall, is_events, ranked
from smg.pipeline.services import Services
from smg.routing.pairing import PartnerFailed
from smg.routing.router import Lease

_ROOM_BITS = 63
# What a prefill engine may take to end its answer, in seconds, after the other one's is whole.
_LATE_SECS = 2.0
# The most of an answer that is kept to put the prompt's log probabilities into it, in bytes.
_MOST = 256 << 20


class _Begun(msgspec.Struct):
    """An answer whose head and first bytes are there."""

    answer: RawResponse
    first: bytes


class RawPair:
    """One attempt on the pair of ``lease``, whose prefill worker is given back as soon as its part is over."""

    def __init__(self, services: Services, ctx: RequestContext, facts: Facts, lease: Lease, call: RawCall) -> None:
        assert lease.prefill is not None
        self._services = services
        self._ctx = ctx
        self._decode = lease
        self._prefill = lease.prefill
        self._call = call
        self._books = PairBooks(services, ctx, facts, lease)
        self._wants_prompt = call.feature == "generate_api" and bool(call.fields.get("return_logprob"))
        self._told = b""
        self._prefilling: asyncio.Task[_Begun | None] | None = None

    async def open(self) -> tuple[RawResponse, bytes]:
        """Send the request to both; returns the answer for the client, and its first bytes.

        Raises:
            GatewayError: PartnerFailed when the prefill worker is to blame; neither engine works on it then.
        """
        room = _room(self._services, self._prefill, batch_size(self._call))
        theirs = _rank("disagg_prefill_dp_rank", self._prefill)
        loop = asyncio.get_running_loop()
        prefill = loop.create_task(self._drain(room | _rank("routed_dp_rank", self._prefill)))
        decode = loop.create_task(self._begin(self._decode, room | _rank("routed_dp_rank", self._decode) | theirs))
        self._prefilling = prefill
        try:
            return await self._first(prefill, decode)
        except BaseException:
            await _cancelled(prefill, decode)
            raise

    async def _first(
        self, prefill: "asyncio.Task[_Begun | None]", decode: "asyncio.Task[_Begun]"
    ) -> tuple[RawResponse, bytes]:
        """Wait for the decode engine's first bytes, or for what keeps them from coming."""
        failures: dict[str, GatewayError] = {}
        running: set[asyncio.Task[Any]] = {prefill, decode}
        while not failures:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            _collect(failures, prefill=prefill, decode=decode)
            if failures:
                break
            if prefill in done and (refusal := prefill.result()) is not None:
                # The client's own mistake, in the engine's words; the other engine may wait for ever.
                await _cancelled(decode)
                return refusal.answer, refusal.first
            if decode.done() and (prefill.done() or not self._wants_prompt or decode.result().answer.status >= 400):
                return await self._answer(decode.result())
        if running and not any(map(gone, failures.values())):
            await asyncio.wait(running, timeout=VERDICT_SECS)
            _collect(failures, prefill=prefill, decode=decode)
        if blamed(failures) == "decode":
            raise failures["decode"]
        self._books.ended(failures["prefill"])
        if decode.done() and "decode" not in failures and not self._wants_prompt:
            # It has been handed the prompt: the other engine's failure costs only that one.
            return await self._answer(decode.result())
        raise PartnerFailed(failures["prefill"], self._prefill.worker.id)

    async def _answer(self, begun: _Begun) -> tuple[RawResponse, bytes]:
        """The decode engine's answer as the client gets it; the prefill engine is followed to its end."""
        answer, first = begun.answer, begun.first
        assert self._prefilling is not None
        self._prefilling.add_done_callback(self._late)
        told = PromptLogprobs(self._told, stream=is_events(answer)) if self._wants_prompt else None
        if told is not None and answer.status < 400 and not is_events(answer):
            whole = told.whole(await _whole(answer.body, first))
            kept = [(name, value) for name, value in answer.headers if name != "content-length"]
            headers = [*kept, ("content-length", str(len(whole)))]
            answer, first, told = RawResponse(answer.status, headers, answer.body), whole, None
        body = _PairBody(answer.body, self._over, told if is_events(answer) else None)
        return RawResponse(answer.status, answer.headers, body), body.passed(first)

    async def _drain(self, more: dict[str, Any]) -> _Begun | None:
        """Read the prefill engine's answer to its end; one that refuses the request is returned instead.

        Raises:
            GatewayError: it failed, or took too long.
        """
        patience = self._services.settings.disaggregation.prefill_timeout_secs
        try:
            async with asyncio.timeout(patience):
                begun = await self._begin(self._prefill, more)
                if begun.answer.status >= 400:
                    return begun
                try:
                    if self._wants_prompt:
                        self._told = await _whole(begun.answer.body, begun.first)
                    elif begun.first:
                        while await begun.answer.body.read():
                            pass
                finally:
                    begun.answer.body.close()
        except TimeoutError:
            raise too_late(patience) from None
        self._books.ended(None)
        return None

    async def _begin(self, lease: Lease, more: dict[str, Any]) -> _Begun:
        """Send the request to one engine and wait for its first bytes."""
        body, headers = self._call.body(lease.worker, more), ranked(self._call.headers, lease.rank)
        driver = self._services.drivers.http(lease.worker)
        answer = await driver.forward(self._ctx, "POST", self._call.paths[0], headers, body)
        try:
            return _Begun(answer, await answer.body.read())
        except BaseException:
            answer.body.close()
            raise

    def _late(self, task: "asyncio.Task[_Begun | None]") -> None:
        """The prefill engine has ended after the answer has begun."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, GatewayError):
            self._books.ended(error)

    def _over(self, *, whole: bool) -> None:
        """The answer is over: the prefill engine has nothing to do any more, and a moment to end by itself if all is
        well."""
        if self._prefilling is None or self._prefilling.done():
            return
        if whole:
            asyncio.get_running_loop().call_later(_LATE_SECS, self._prefilling.cancel)
        else:
            self._prefilling.cancel()


class _PairBody:
    """The body of the decode engine's answer (``RawBody``), whose end and breaking off the pair hears of.

    ``told`` goes into each event of a stream.
    """

    def __init__(self, body: RawBody, over: Callable[..., None], told: PromptLogprobs | None) -> None:
        self._body = body
        self._over = over
        self._told = told
        self._events = Events()
        self._ended = False

    async def read(self) -> bytes:
        while not self._ended:
            data = await self._body.read()
            out = self.passed(data)
            if out:
                return out
        return b""

    def passed(self, data: bytes) -> bytes:
        """What goes to the client of ``data``; b"" is the end."""
        if not data:
            self._ended = True
            self._over(whole=True)
            return self._events.rest
        if self._told is None:
            return data
        return b"".join(self._told.event(event) for event in self._events.feed(data))

    def close(self) -> None:
        self._body.close()
        if not self._ended:
            self._ended = True
            self._over(whole=False)


def batch_size(call: RawCall) -> int | None:
    """How many generations the request is for the engine, None for a single one: each has a room of its own."""
    for name in ("prompt", "text", "input_ids"):
        if bytes(call.fields.view(name)[:1]) == b"[":
            value = call.fields.get(name)
            if value and not isinstance(value[0], int):
                return len(value)
    count = call.fields.get("n")
    return count if type(count) is int and count > 1 else None


def _room(services: Services, prefill: Lease, count: int | None) -> dict[str, Any]:
    """Where the engines meet, as members of a body; lists for a batch."""
    host, port = meeting_point(prefill.worker)
    if count is None:
        return {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": services.rooms.next(_ROOM_BITS)}
    return {
        "bootstrap_host": [host] * count,
        "bootstrap_port": [port] * count,
        "bootstrap_room": [services.rooms.next(_ROOM_BITS) for _ in range(count)],
    }


def _rank(name: str, lease: Lease) -> dict[str, Any]:
    return {} if lease.rank is None else {name: lease.rank}


def _collect(failures: dict[str, GatewayError], **legs: "asyncio.Task[Any]") -> None:
    """Take over the errors of the legs that have failed."""
    for leg, task in legs.items():
        if leg not in failures and task.done() and (error := task.exception()) is not None:
            if not isinstance(error, GatewayError):
                raise error
            failures[leg] = error


async def _whole(body: RawBody, first: bytes) -> bytes:
    """The rest of a body behind its first bytes. Raises GatewayError for one that is too large to be kept."""
    parts, size = [first], len(first)
    while first and (data := await body.read()):
        parts.append(data)
        size += len(data)
        if size > _MOST:
            body.close()
            raise GatewayError("worker_failed", "the engine's answer is too large", worker_fault=True)
    return b"".join(parts)


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel and wait; an answer that was there already is closed."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, _Begun):
            result.answer.body.close()
