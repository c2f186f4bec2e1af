"""Both transports bring the same generation, token by token (DESIGN 6: grpcio is the oracle of the native one)."""

import random

import pytest

from smg.core.context import RequestContext
from smg.core.request import Logprobs
from smg.engine_server.mock import MockEngine, Script
from smg.engines.driver import GrpcDriver
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.vllm.adapter import VllmAdapter

RANDOM = random.Random(11)
LONG = [RANDOM.randrange(200) for _ in range(3000)]

CASES = {
    "one-token-each": (Script(tokens=LONG[:300], eos=False), {}),
    "long": (Script(tokens=LONG, eos=False, per_chunk=7), {}),
    "choices": (Script(choices=[LONG[:50], LONG[50:53], [], LONG[60:160]], eos=False), {"n": 4}),
    "empty-chunks": (Script(tokens=LONG[:40], eos=False, empty_chunks=True, late_cached=True, cached_tokens=9), {}),
    "cumulative": (Script(tokens=LONG[:40], eos=False, complete_ids="all", delta_counts=False), {}),
    "matched": (Script(tokens=LONG[:10], matched_stop="END"), {}),
    "logprobs": (Script(tokens=LONG[:20], eos=False, per_chunk=3), {"logprobs": Logprobs(3, prompt=True)}),
    "end-of-sequence": (Script(tokens=LONG[:10]), {}),
}


async def generation(transport, url, request):
    """Per choice: ids, log probabilities, the end and the counts, however the batches were cut."""
    driver = GrpcDriver(url, VllmAdapter(), transport(url))
    try:
        source = await driver.open(RequestContext(request_id=request.id), request)
        out: dict[int, dict] = {}
        while batches := await source.next():
            for batch in batches:
                choice = out.setdefault(batch.index, {"ids": [], "logprobs": [], "prompt": [], "finish": None})
                choice["ids"] += batch.ids
                choice["logprobs"] += batch.logprobs or []
                choice["prompt"] += batch.prompt_logprobs or []
                choice["finish"] = choice["finish"] or batch.finish
                choice["end"] = (batch.matched_stop, batch.prompt_tokens, batch.cached_tokens)
        return out
    finally:
        await driver.close()


@pytest.mark.parametrize("case", CASES)
async def test_the_same_generation(kit, case):
    script, changes = CASES[case]
    async with MockEngine(script) as engine:
        request = kit.request(limits=kit.request().limits.__class__(max_tokens=5000), **changes)
        expected = await generation(GrpcioTransport, engine.url, request)
        assert await generation(H2Transport, engine.url, request) == expected
        assert len(expected) == request.n
        assert all(choice["finish"] for choice in expected.values())


async def test_plain_chunks_are_read_natively_and_others_by_the_contract(kit):
    async with MockEngine(Script(tokens=LONG[:5], eos=False)) as engine:
        driver = GrpcDriver(engine.url, VllmAdapter(), H2Transport(engine.url))
        for changes, plain in (({}, True), ({"logprobs": Logprobs(1)}, False)):
            request = kit.request(**changes)
            source = await driver.open(RequestContext(request_id="r"), request)
            assert (source._decoder.plain is not None) == plain
            assert (source._call._layout is not None) == plain
            assert [token for batch in await kit.drain(source) for token in batch.ids] == LONG[:5]
        await driver.close()
