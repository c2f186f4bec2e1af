"""Embeds texts or ids: one call to an engine for each, at the same time, each with attempts of its own."""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Usage
from smg.core.ids import dispatch_id
from smg.core.request import GenerationRequest, Hints
from smg.engines.base import EmbedResult
from smg.fleet.records import ModelRecord
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.loading import loaded, obtained
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.models import resolve
from smg.routing.retry import Attempts
from smg.routing.router import Query
from smg.text.prepare import prepare, prepare_pair
from smg.text.registry import TextModel

# Calls of one request that run at the same time.
AT_ONCE = 64
# Inputs that are encoded between two looks at other requests.
_IN_A_ROW = 16

Input: TypeAlias = str | list[int] | tuple[str, str]


class Embedding:
    """One client request for the vectors of ``inputs``: texts, token ids, or pairs of texts.

    ``paths`` are where the body has each, for errors. After ``run`` there are ``results`` in the order of the inputs,
    and ``tokens``, the number of all their tokens.
    """

    def __init__(
        self, services: Services, ctx: RequestContext, model: str, inputs: Sequence[Input], paths: Sequence[str]
    ) -> None:
        self._services = services
        self._ctx = ctx
        self._inputs = list(zip(inputs, paths, strict=True))
        self._facts = Facts(services.metrics, ctx, streaming=False, transport="grpcio")
        self._room = asyncio.Semaphore(AT_ONCE)
        self.model: ModelRecord = resolve(services.view.snapshot(), model)
        self.results: list[EmbedResult] = []
        self.tokens = 0

    async def run(self, hints: Hints) -> "Embedding":
        """Do it, all or nothing.

        Raises:
            GatewayError: a bad input, no engine that embeds, or the first failure.
        """
        self._facts.model(self.model.id)
        try:
            await self._run(hints)
        except GatewayError as error:
            self._facts.failed(error.code)
            raise
        return self

    async def _run(self, hints: Hints) -> None:
        services, interrupt = self._services, Interrupt(self._ctx)
        services.admission.check()
        charge = services.tenants.enter(self._ctx, self.model.id)
        try:
            self.model = await interrupt.run(obtained(services.view, services.texts, self.model))
            text = await interrupt.run(loaded(services.texts, self.model))
            prompts = []
            for number, (each, path) in enumerate(self._inputs):
                prompts.append(await interrupt.run(self._ids(text, each, path)))
                if number % _IN_A_ROW == 0:
                    await asyncio.sleep(0)
            self.tokens = sum(map(len, prompts))
            charge.take(self.tokens)
            admitted = await interrupt.run(services.admission.acquire(self._ctx))
        finally:
            interrupt.close()
        try:
            self.results = await self._all(prompts, hints)
        finally:
            admitted.release()
        self._facts.first_token()
        self._facts.closed(Usage(prompt_tokens=self.tokens))

    async def _ids(self, text: TextModel, each: Input, path: str) -> Sequence[int]:
        if isinstance(each, tuple):
            ids: Sequence[int] = await prepare_pair(text, *each, path)
        else:
            request = GenerationRequest("embeddings", self.model.id, prompt_path=path)
            if isinstance(each, str):
                request.prompt_text = each
            else:
                request.prompt_ids = each
            ids = (await prepare(text, request)).ids
        longest = self.model.max_input_length or self.model.context_length
        if longest and len(ids) > longest:
            message = f"this model's inputs have at most {longest} tokens, but this one has {len(ids)}"
            raise GatewayError("context_length_exceeded", message, param=path)
        return ids

    async def _all(self, prompts: Sequence[Sequence[int]], hints: Hints) -> list[EmbedResult]:
        tasks = [asyncio.ensure_future(self._one(number, ids, hints)) for number, ids in enumerate(prompts)]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _one(self, number: int, ids: Sequence[int], hints: Hints) -> EmbedResult:
        interrupt = Interrupt(self._ctx)
        try:
            async with self._room:
                return await self._attempts(interrupt, number, ids, hints)
        finally:
            interrupt.close()

    async def _attempts(self, interrupt: Interrupt, number: int, ids: Sequence[int], hints: Hints) -> EmbedResult:
        router = self._services.router
        attempts = Attempts(self._services.settings.routing, self._ctx, self._services.budget)
        query = Query(self.model.id, ids, hints=hints, tokens=len(ids), needs=frozenset({"embed"}))

        def available(tried: frozenset[str]) -> bool:
            return router.available(replace(query, tried=tried))

        def patience() -> float | None:
            return router.patience(query)

        self._services.budget.request()
        while True:
            lease = router.select(replace(query, tried=attempts.tried))
            try:
                self._facts.selected(lease, attempts.number)
                driver = self._services.drivers.grpc(lease.worker)
                name = dispatch_id(f"{self._ctx.request_id}-{number}", attempts.number)
                result = await interrupt.run(driver.embed(self._ctx, name, ids))
                router.commit(lease)
                router.release(lease, "ok")
                return result
            except GatewayError as error:
                router.release(lease, "cancelled" if self._ctx.cancel else outcome_of(error))
                wait = attempts.failed(error, lease.worker.id, available, patience, lease.worker.resilience)
                self._facts.retried(error, lease.worker.id, attempts.number, wait)
            except BaseException:
                router.release(lease, "cancelled")
                raise
            if wait:
                await interrupt.run(asyncio.sleep(wait))
