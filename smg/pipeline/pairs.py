"""Opens a generation on a pair of engines, the way their contract wants it (spec engine-contract 5)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from smg.core.backends import Bootstrap, EngineRequest, RowSource, Source, feeds_rows
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.pipeline.blame import too_late
from smg.pipeline.encode_jobs import EncodeJobs
from smg.pipeline.facts import Facts
from smg.pipeline.pair_books import PairBooks
from smg.pipeline.pair_source import PairSource
from smg.pipeline.services import Services
from smg.routing import handoff
from smg.routing.pairing import PartnerFailed
from smg.routing.router import Lease


class _HandedOver(RowSource):
    """The ``Source`` of a decode engine whose prefill engine has ended, but holds the cache until it is fetched."""

    def __init__(self, decode: Source, forget: Callable[[str], None]) -> None:
        self._decode = decode
        self._forget = forget
        self._fetched = False

    async def next(self) -> list[TokenBatch]:
        batches = await self._decode.next()
        self._fetched = True
        return batches

    def feed_rows(self, table: StreamTable, rows: Sequence[int]) -> bool:
        return feeds_rows(self._decode) and self._decode.feed_rows(table, rows)

    def unsaid(self) -> list[TokenBatch]:
        return self._decode.unsaid() if feeds_rows(self._decode) else []

    async def cancel(self, reason: str) -> None:
        """Stop the decode engine; the other one hears of it where it may still wait to be asked."""
        await self._decode.cancel(reason)
        if not self._fetched:
            self._fetched = True
            self._forget(reason)


class PairOpener:
    """One attempt on the pair of ``lease``, whose prefill worker is given back as soon as its part is over."""

    def __init__(self, services: Services, ctx: RequestContext, facts: Facts, lease: Lease) -> None:
        assert lease.prefill is not None
        self._services = services
        self._ctx = ctx
        self._facts = facts
        self._books = PairBooks(services, ctx, facts, lease)
        self._lease = lease
        self._prefill = lease.prefill
        self._patience = services.settings.disaggregation.prefill_timeout_secs
        self._pair: PairSource | None = None
        # An encode engine failed before both others were asked.
        self._lost: PartnerFailed | None = None

    async def open(self, request: EngineRequest) -> Source:
        """Dispatch ``request`` to both.

        Raises:
            GatewayError: PartnerFailed when the prefill worker is to blame; neither engine works on it then.
        """
        if self._prefill.worker.runtime in handoff.MEETING:
            return await self._open_meeting(request)
        return await self._open_relayed(request)

    async def _open_meeting(self, request: EngineRequest) -> Source:
        """Both at once; they find each other."""
        jobs = EncodeJobs(self._services, self._ctx, self._facts, self._encode_failed)
        encoders: Sequence[Bootstrap] = ()
        if request.media is not None and self._lease.encode:
            encoders = jobs.start(self._lease.encode, request.id, request.media)
        try:
            legs = handoff.meeting(self._prefill.worker, self._services.rooms, encoders)
            prefill = await self._ask_prefill(replace(request, leg=legs[0], dp_rank=None))
            try:
                decode = await self._ask_decode(replace(request, leg=legs[1]))
            except BaseException:
                await asyncio.shield(prefill.cancel("error"))
                raise
        except BaseException:
            jobs.cancel()
            raise
        wants_prompt = request.logprobs is not None and request.logprobs.prompt
        self._pair = PairSource(
            self._ctx,
            prefill,
            decode,
            self._prefill.worker.id,
            self._books.ended,
            patience=self._patience,
            wants_prompt=wants_prompt,
            over=jobs.not_needed,
        )
        if self._lost is not None:
            self._pair.fail(self._lost)
        return self._pair

    async def _open_relayed(self, request: EngineRequest) -> Source:
        """First the one, then with what it returned the other; the second hears nothing while the first may fail."""
        why = handoff.relayable(request)
        leg = None
        if why is None:
            relay = handoff.KvRelay(self._prefill.worker, self._services.rooms.turn(), self._prefill.rank)
            leg = relay.answer(await self._prefilled(relay.ask(request)))
            why = "no_params" if leg is None else None
            if leg is not None and relay.describes(request, leg, self._lease.worker):
                leg = replace(leg, described=True)
        else:
            self._services.router.release(self._prefill, "cancelled")
        if why is not None:
            self._facts.recomputed(why)
        decode = await self._ask_decode(replace(request, leg=leg))
        if leg is None:
            return decode
        driver = self._services.drivers.grpc(self._prefill.worker)
        return _HandedOver(decode, partial(driver.abort, request.id))

    async def _prefilled(self, request: EngineRequest) -> bytes | None:
        """Wait for the prefill engine's end; returns what it hands over, None when that is nothing."""
        source = await self._ask_prefill(request)
        returned: bytes | None = None
        try:
            async with asyncio.timeout(self._patience):
                while batches := await source.next():
                    returned = next((batch.kv_params for batch in batches if batch.kv_params), returned)
        except TimeoutError:
            await source.cancel("deadline")
            raise self._failed(too_late(self._patience)) from None
        except GatewayError as error:
            if self._ctx.cancel:
                raise
            raise self._failed(error) from None
        except BaseException:
            await asyncio.shield(source.cancel(self._ctx.cancel.reason or "client_disconnect"))
            raise
        self._books.ended(None)
        return returned

    async def _ask_prefill(self, request: EngineRequest) -> Source:
        rank = self._prefill.rank
        try:
            driver = self._services.drivers.grpc(self._prefill.worker)
            return await driver.open(self._ctx, request if rank is None else replace(request, dp_rank=rank))
        except GatewayError as error:
            if self._ctx.cancel:
                raise
            raise self._failed(error) from None

    async def _ask_decode(self, request: EngineRequest) -> Source:
        """The client's wish for a rank concerns this engine, unless routing has chosen one."""
        rank = self._lease.rank
        driver = self._services.drivers.grpc(self._lease.worker)
        return await driver.open(self._ctx, request if rank is None else replace(request, dp_rank=rank))

    def _encode_failed(self, error: PartnerFailed) -> None:
        """An image has no embeddings, so nobody needs to go on."""
        self._lost = error
        if self._pair is not None:
            self._pair.fail(error)
        if error.worker_fault:
            self._books.failed("encode", error.worker, error.cause)

    def _failed(self, error: GatewayError) -> PartnerFailed:
        self._books.ended(error)
        return PartnerFailed(error, self._prefill.worker.id)
