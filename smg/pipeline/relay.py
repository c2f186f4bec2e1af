"""One request that an HTTP engine answers in the client's own dialect: bytes in, bytes out (DESIGN 3, raw).

``start`` does everything that may still be answered by an error of the gateway's own, the first bytes of the body
included; ``read`` yields the rest as it comes; ``aclose`` gives everything back. Nothing is read from the engine while
nobody awaits ``read``.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from smg.core.backends import RawResponse
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Usage
from smg.engines.http.routes import CHAT
from smg.engines.http.usage import BodyTap, StreamTap, Tap
from smg.fleet.breaker import Outcome
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.raw_call import Call, RawCall, at_rank, is_events, ranked
from smg.pipeline.raw_pair import RawPair
from smg.pipeline.services import Services
from smg.pipeline.trying import Trying
from smg.routing.admission import AdmissionLease
from smg.routing.fleet_router import outcome_of
from smg.routing.router import Lease
from smg.routing.tenants import FREE


class _Running(msgspec.Struct):
    """An answer that has begun: ``first`` are its first bytes (empty: the body is)."""

    lease: Lease
    answer: RawResponse
    first: bytes


class Relay:
    """Life of one forwarded request. Use: ``start``, ``read`` until it is empty, and always ``aclose``.

    ``over`` is True once the engine has nothing more to say.
    """

    def __init__(self, services: Services, ctx: RequestContext, call: Call) -> None:
        self._services = services
        self._ctx = ctx
        self._call = call
        self._facts = Facts(services.metrics, ctx, streaming=call.stream)
        self._interrupt = Interrupt(ctx)
        self._admitted: AdmissionLease | None = None
        self._charge = FREE
        self._running: _Running | None = None
        self._tap: Tap | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._outcome: Outcome = "cancelled"
        self.over = False
        self._closed = False

    @property
    def usage(self) -> Usage:
        """The counts that the engine has told so far."""
        return Usage() if self._tap is None else self._tap.usage

    def ignored(self, features: Iterable[str]) -> None:
        """Tell the client, as ``Facts.ignored``. Before ``start``."""
        self._facts.ignored(features)

    async def start(self) -> RawResponse:
        """Admit, select, forward, and wait for head and first bytes; the body of what is returned is ``read`` here.

        Raises:
            GatewayError: whatever is wrong; nothing has been sent and everything is given back.
        """
        try:
            return await self._start()
        except GatewayError as error:
            self._facts.failed(error.code)
            await self.aclose("error")
            raise
        except BaseException:
            await self.aclose("client_disconnect")
            raise

    async def _start(self) -> RawResponse:
        remaining = self._ctx.remaining()
        if remaining is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(remaining, self._ctx.cancel.cancel, "deadline")
        self._facts.model(self._call.model.id)
        self._services.admission.check()
        self._charge = self._services.tenants.enter(self._ctx, self._call.asked)
        query = self._call.query()
        self._charge.take(query.tokens)
        self._admitted = await self._interrupt.run(self._services.admission.acquire(self._ctx))
        trying = Trying(self._services, self._ctx, self._interrupt, self._facts)
        running = await trying.run(query, self._attempt)
        self._running = running
        self._facts.first_token()
        chat = self._call.feature == CHAT
        if is_events(running.answer):
            self._tap = StreamTap(hide=self._call.hide_usage, chat=chat)
        else:
            self._tap = BodyTap(chat=chat)
        return running.answer

    async def _attempt(self, lease: Lease, _number: int) -> _Running:
        if lease.prefill is not None:
            if not isinstance(self._call, RawCall):
                raise GatewayError("unsupported_parameter", "Pairs of engines take requests in JSON only.")
            pair = RawPair(self._services, self._ctx, self._facts, lease, self._call)
            answer, first = await self._interrupt.run(pair.open())
        else:
            answer, first = await self._alone(lease)
        self._services.router.commit(lease)
        return _Running(lease, answer, first)

    async def _alone(self, lease: Lease) -> tuple[RawResponse, bytes]:
        driver = self._services.drivers.http(lease.worker)
        body = self._call.body(lease.worker, at_rank(lease.rank))
        headers = ranked(self._call.headers, lease.rank)
        for path in self._call.paths:
            answer = await self._interrupt.run(driver.forward(self._ctx, "POST", path, headers, body))
            if answer.status not in (404, 405) or path == self._call.paths[-1]:
                break
            answer.body.close()
        try:
            # Headers prove nothing yet: what breaks before the first bytes can still be tried elsewhere.
            return answer, await self._interrupt.run(answer.body.read())
        except BaseException:
            answer.body.close()
            raise

    async def read(self) -> bytes:
        """The next bytes for the client, b"" at the end.

        Raises:
            GatewayError: the engine broke off, or the request is cancelled.
        """
        assert self._running is not None
        assert self._tap is not None, "start() comes first"
        while not self.over:
            try:
                data = await self._next(self._running)
            except GatewayError as error:
                self.over = True
                self._outcome = "cancelled" if self._ctx.cancel else outcome_of(error)
                self._tap.finish()
                if not self._ctx.cancel:
                    worker, why = self._running.lease.worker.id, "answers of HTTP engines cannot go on elsewhere"
                    self._facts.broken(error, worker, self.usage.completion_tokens, why)
                self._facts.failed(error.code)
                raise
            if data:
                out = self._tap.feed(data)
            else:
                self.over = True
                self._outcome = "ok" if self._running.answer.status < 400 else "client_error"
                out = self._tap.finish()
            if out:
                return out
        return b""

    async def _next(self, running: _Running) -> bytes:
        if running.first:
            data, running.first = running.first, b""
            return data
        return await self._interrupt.run(running.answer.body.read())

    async def aclose(self, reason: str = "stop") -> None:
        """Give everything back; an answer that still runs is broken off. Idempotent, never raises."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._interrupt.close()
        if self._admitted is not None:
            self._admitted.release()
        if self._running is None:
            return
        self._running.answer.body.close()
        if not self.over:
            self._facts.aborted(self._ctx.cancel.reason or reason)
        self._facts.closed(self.usage)
        self._charge.settle(self.usage)
        self._services.router.release(self._running.lease, self._outcome)
