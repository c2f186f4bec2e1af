"""Opens a generation on a pair of engines, the way their contract wants it (spec engine-contract 5)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from smg.core.backends import Bootstrap, EngineRequest, RowSource, Source
from smg.core.batch import TokenBatch
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.stream import StreamTable
from smg.pipeline.encode_jobs import EncodeJobs
from smg.pipeline.facts import Facts
from smg.pipeline.pair_source import PairSource, too_late
from smg.pipeline.services import Services
from smg.routing import handoff
from smg.routing.fleet_router import outcome_of
from smg.routing.pairing import PartnerFailed
from smg.routing.router import Lease

log = logging.getLogger("smg.pipeline")


class _HandedOver:
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
        return isinstance(self._decode, RowSource) and self._decode.feed_rows(table, rows)

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
            self._ended,
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
        self._ended(None)
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
            self._log("encode", error.worker, error.cause)

    def _failed(self, error: GatewayError) -> PartnerFailed:
        self._ended(error)
        return PartnerFailed(error, self._prefill.worker.id)

    def _ended(self, error: GatewayError | None) -> None:
        """The prefill worker's part is over: book it, whatever becomes of the rest."""
        router = self._services.router
        if error is None:
            router.commit(self._prefill)
            router.release(self._prefill, "ok")
            self._facts.prefilled()
            return
        router.release(self._prefill, outcome_of(error))
        if not error.worker_fault:
            return
        self._log("prefill", self._prefill.worker.id, error)

    def _log(self, leg: str, worker: str, error: GatewayError) -> None:
        self._facts.leg_failed(leg, error.code)
        facts = {"request_id": self._ctx.request_id, "worker": self._lease.worker.id, leg: worker}
        log.warning("%s engine failed", leg, extra={**facts, "error": error.detail or error.message})
