"""All drivers keep the same promises, whatever their engines' quirks (spec engine-contract 2, 4.3, 10.1)."""

import asyncio
import hashlib

import grpc
import pytest

from smg.core.context import RequestContext, TraceParent
from smg.core.errors import GatewayError
from smg.core.request import Limits, Logprobs, Sampling
from smg.engine_server.mock import CONTRACTS, EOS, Fault, MockEngine, Script
from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.contracts.sglang import SECRET
from smg.engines.admin import ProfileOptions
from smg.engines.base import EngineLoad
from smg.engines.probe import detect
from smg.engines.table import ADAPTERS, adapter
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.table import TRANSPORTS
from tests.engines.contracts import NAMES, driver_to, having, lacking, message_class

IDS = [10, 11, 12, 13]


@pytest.fixture
def transport(request):
    return TRANSPORTS[getattr(request, "param", "grpcio")]


over_all_transports = pytest.mark.parametrize("transport", list(TRANSPORTS), indirect=True)


@pytest.fixture(params=NAMES)
def contract(request):
    return request.param


@pytest.fixture
async def engine(contract):
    async with MockEngine(Script(tokens=IDS), contract=contract) as engine:
        yield engine


@pytest.fixture
async def driver(engine, contract, transport):
    async with driver_to(engine.url, contract, transport) as driver:
        yield driver


def only(names):
    """Parametrise ``contract`` with some of the contracts."""
    return pytest.mark.parametrize("contract", names, indirect=False)


def ids_of(batches, index=0):
    return [token for batch in batches if batch.index == index for token in batch.ids]


def ends_of(batches):
    return {batch.index: batch.finish for batch in batches if batch.finish}


async def fails(awaitable):
    with pytest.raises(GatewayError) as caught:
        await awaitable
    return caught.value


def test_there_is_a_mock_for_every_driver():
    assert list(CONTRACTS) == list(ADAPTERS)
    for name, make in CONTRACTS.items():
        assert make().service.full_name == adapter(name).service


@over_all_transports
class TestTokens:
    @pytest.mark.parametrize(
        "quirks",
        [
            {},
            {"per_chunk": 3},
            {"empty_chunks": True},
            {"complete_ids": "all"},
            {"complete_ids": "delta", "delta_counts": True},
            {"complete_ids": "none", "delta_counts": False},
        ],
        ids=str,
    )
    async def test_each_token_counts_once_whatever_the_complete_repeats(self, driver, engine, ctx, kit, quirks):
        engine.script = Script(tokens=IDS, **quirks)
        batches = await kit.drain(await driver.open(ctx, kit.request()))
        assert ids_of(batches) == [*IDS, EOS]
        assert ends_of(batches) == {0: "stop"}
        assert batches[-1].prompt_tokens == 3
        await kit.eventually(lambda: engine.requests[0].state == "done")
        assert engine.aborted == []

    async def test_the_engine_takes_the_defaults_of_a_bare_request(self, driver, engine, ctx, kit):
        """The mock refuses a top_p, top_k, repetition_penalty or n that somebody forgot to set."""
        batches = await kit.drain(await driver.open(ctx, kit.request(sampling=Sampling())))
        assert ends_of(batches) == {0: "stop"}
        [seen] = engine.requests
        assert (seen.id, seen.ask.stream, list(seen.ask.prompt)) == ("req-1", True, [1, 2, 3])

    async def test_the_trace_travels_along(self, driver, engine, ctx, kit):
        ctx.trace = TraceParent("a" * 32, "b" * 16, state="vendor=1")
        await kit.drain(await driver.open(ctx, kit.request()))
        assert engine.requests[0].metadata["traceparent"] == ctx.trace.header()
        assert engine.requests[0].metadata["tracestate"] == "vendor=1"

    async def test_a_stop_id_ends_the_choice_and_stays_for_the_gateway_to_hide(self, driver, ctx, kit):
        batches = await kit.drain(await driver.open(ctx, kit.request(stop_ids=(12,))))
        assert ids_of(batches) == [10, 11, 12]
        assert (batches[-1].finish, batches[-1].matched_stop) == ("stop", 12)

    async def test_the_limit(self, driver, ctx, kit):
        batches = await kit.drain(await driver.open(ctx, kit.request(limits=Limits(max_tokens=2))))
        assert (ids_of(batches), ends_of(batches)) == ([10, 11], {0: "length"})

    async def test_generation_past_the_end_of_sequence(self, driver, engine, ctx, kit):
        request = kit.request(ignore_eos=True, limits=Limits(max_tokens=6))
        assert ids_of(await kit.drain(await driver.open(ctx, request))) == [*IDS, 10, 11]

    @only(having("min_tokens"))
    async def test_a_minimum_of_tokens(self, driver, ctx, kit):
        request = kit.request(stop_ids=(10,), limits=Limits(max_tokens=9, min_tokens=2))
        assert ids_of(await kit.drain(await driver.open(ctx, request))) == [*IDS, EOS]

    @only(having("n"))
    async def test_choices_keep_their_numbers(self, driver, engine, ctx, kit):
        engine.script = Script(choices=[[1, 2, 3], [4], [5, 6]], eos=False)
        batches = await kit.drain(await driver.open(ctx, kit.request(n=3)))
        assert [ids_of(batches, index) for index in range(3)] == [[1, 2, 3], [4], [5, 6]]
        assert ends_of(batches) == {0: "stop", 1: "stop", 2: "stop"}

    @only(lacking("n"))
    async def test_more_choices_than_the_contract_has_are_not_dispatched(self, driver, engine, ctx, kit):
        error = await fails(driver.open(ctx, kit.request(n=2)))
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "n")
        assert engine.requests == []


class TestReports:
    async def test_usage(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, cached_tokens=2, late_cached=True)
        batches = await kit.drain(await driver.open(ctx, kit.request()))
        assert [batch.prompt_tokens for batch in batches] == [3] * len(batches)
        assert [batch.cached_tokens for batch in batches] == [0] + [2] * (len(batches) - 1)

    async def test_what_only_some_contracts_tell(self, driver, contract, engine, ctx, kit):
        engine.script = Script(tokens=IDS, reasoning_tokens=3, spec_tokens=(4, 9), weight_version="v7")
        end = (await kit.drain(await driver.open(ctx, kit.request())))[-1]
        assert end.reasoning_tokens == (3 if contract == "sglang" else 0)
        assert (end.spec_accepted_tokens, end.spec_draft_tokens) == ((0, 0) if contract == "mlx" else (4, 9))
        assert end.weight_version == ("v7" if contract == "tokenspeed" else "")

    async def test_logprobs_have_one_row_per_id_the_best_first(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, eos=False, per_chunk=3, empty_chunks=True)
        batches = await kit.drain(await driver.open(ctx, kit.request(logprobs=Logprobs(2))))
        for batch in batches:
            assert batch.finish or len(batch.logprobs) == len(batch.ids)
        rows = [row for batch in batches for row in batch.logprobs or []]
        assert [(row.token, row.logprob) for row in rows] == [(token, -0.5) for token in IDS]
        assert all(row.top == ((row.token + 1, -0.25), (row.token, -0.5)) for row in rows)

    async def test_logprobs_without_candidates(self, driver, engine, ctx, kit):
        batches = await kit.drain(await driver.open(ctx, kit.request(logprobs=Logprobs(0))))
        rows = [row for batch in batches for row in batch.logprobs or []]
        assert [(row.token, row.logprob, row.top) for row in rows] == [(token, -0.5, ()) for token in [*IDS, EOS]]

    async def test_nobody_asked_for_logprobs(self, driver, ctx, kit):
        batches = await kit.drain(await driver.open(ctx, kit.request()))
        assert {batch.logprobs for batch in batches} == {None}

    @only(having("prompt_logprobs"))
    async def test_the_prompts_logprobs_come_once(self, driver, ctx, kit):
        batches = await kit.drain(await driver.open(ctx, kit.request(logprobs=Logprobs(2, prompt=True))))
        [prompt] = [batch.prompt_logprobs for batch in batches if batch.prompt_logprobs]
        assert [row.token for row in prompt] == [1, 2, 3]
        assert [row.logprob for row in prompt][1:] == [-0.5, -0.5]
        assert prompt[1].top == ((3, -0.25), (2, -0.5))

    @only(lacking("prompt_logprobs"))
    async def test_no_prompt_logprobs(self, driver, ctx, kit):
        error = await fails(driver.open(ctx, kit.request(logprobs=Logprobs(0, prompt=True))))
        assert (error.code, error.param) == ("unsupported_parameter", "logprobs")

    @pytest.mark.parametrize(
        ("told", "finish"), [("", "stop"), ("stop", "stop"), ("repetition", "stop"), ("length", "length")]
    )
    async def test_finish_reasons(self, driver, engine, ctx, kit, told, finish):
        engine.script = Script(tokens=IDS, finish=told)
        assert ends_of(await kit.drain(await driver.open(ctx, kit.request()))) == {0: finish}

    async def test_a_stop_that_only_the_complete_tells_of(self, driver, contract, engine, ctx, kit):
        engine.script = Script(tokens=IDS, matched_stop="END")
        end = (await kit.drain(await driver.open(ctx, kit.request())))[-1]
        assert end.matched_stop == (None if contract == "mlx" else "END")


@over_all_transports
class TestFailures:
    @pytest.mark.parametrize("finish", ["abort", "error"])
    async def test_an_engine_that_gives_up_has_failed(self, driver, engine, ctx, kit, finish):
        engine.script = Script(tokens=IDS, finish=finish)
        error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.code, error.worker_fault) == ("worker_stream_failed", True)

    @pytest.mark.parametrize("after", [None, 0])
    async def test_before_the_first_message_the_status_speaks_even_after_early_headers(
        self, driver, engine, ctx, kit, after
    ):
        engine.script = Script(tokens=IDS, faults=(Fault(after_chunks=after),))
        error = await fails((await driver.open(ctx, kit.request())).next())
        assert (error.status, error.worker_fault, error.retryable) == (503, True, True)

    async def test_after_the_first_message_the_stream_has_broken(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, faults=(Fault(after_chunks=1),))
        source = await driver.open(ctx, kit.request())
        assert ids_of(await source.next()) == [10]
        error = await fails(kit.drain(source))
        assert (error.code, error.status, error.worker_fault) == ("worker_stream_failed", 502, True)

    async def test_OA_02_a_complete_without_a_reason_is_a_stop(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, eos=False, finish="")
        batches = await kit.drain(await driver.open(ctx, kit.request()))
        assert (ids_of(batches), ends_of(batches)) == (IDS, {0: "stop"})

    @pytest.mark.parametrize("after", [0, 2, len(IDS)])
    async def test_OA_02_an_end_without_complete_is_a_broken_stream(self, driver, engine, ctx, kit, after):
        engine.script = Script(tokens=IDS, faults=(Fault(kind="eof", after_chunks=after),))
        error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.code, error.worker_fault) == ("worker_stream_failed", True)

    async def test_a_constraint_the_engine_cannot_satisfy(self, driver, engine, ctx, kit):
        fault = Fault(status=grpc.StatusCode.FAILED_PRECONDITION, trailers=(("smg-constraint-failed", "engine"),))
        engine.script = Script(tokens=IDS, faults=(fault,))
        error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.status, error.worker_fault) == (422, False)

    async def test_what_is_no_answer(self, contract, transport, kit, ctx):
        async def Generate(request, context):
            yield b"\xff\xff"

        serving = kit.serve(adapter(contract).service, Generate=Generate)
        async with serving as address, driver_to(address, contract, transport) as driver:
            error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.code, error.worker_fault) == ("worker_stream_failed", True)

    @only(["vllm", "sglang"])
    async def test_a_message_of_64_mib(self, contract, transport, kit, ctx):
        answer = message_class(contract, "GenerateResponse")
        chunk, complete = answer(chunk={"token_ids": [7]}), answer(complete={"finish_reason": "stop"})
        # Field 1000, which no version knows, with 64 MiB: type and length, then the bytes.
        padding = b"\xc2\x3e\x80\x80\x80\x20" + bytes(64 << 20)

        async def Generate(request, context):
            yield chunk.SerializeToString() + padding
            yield complete.SerializeToString()

        serving = kit.serve(adapter(contract).service, Generate=Generate)
        async with serving as address, driver_to(address, contract, transport) as driver:
            batches = await kit.drain(await driver.open(ctx, kit.request()))
        assert (ids_of(batches), ends_of(batches)) == ([7], {0: "stop"})


@over_all_transports
class TestCancellation:
    @pytest.fixture
    async def endless(self, engine):
        engine.script = Script(tokens=IDS, faults=(Fault(kind="stall", after_chunks=1),))

    @pytest.mark.parametrize("reason", ["client_disconnect", "deadline", "stop"])
    async def test_one_reset_and_one_abort(self, endless, driver, contract, engine, ctx, kit, reason):
        source = await driver.open(ctx, kit.request(id="r-1"))
        await source.next()
        await source.cancel(reason)
        await source.cancel("shutdown")
        await kit.eventually(lambda: engine.aborted == ["r-1"] and engine.running == 0)
        await asyncio.sleep(0.05)
        assert engine.aborted == ["r-1"]
        assert engine.requests[0].state in ("cancelled", "aborted")

    async def test_a_client_that_leaves(self, endless, driver, engine, ctx, kit):
        source = await driver.open(ctx, kit.request())
        await source.next()
        ctx.cancel.cancel("client_disconnect")
        assert (await fails(source.next())).status == 499
        await kit.eventually(lambda: engine.aborted == ["req-1"] and engine.running == 0)

    async def test_many_leave_and_nothing_stays(self, endless, driver, engine, kit):
        contexts = [RequestContext(request_id=f"req-{number}") for number in range(30)]
        for ctx in contexts:
            await driver.open(ctx, kit.request(id=f"{ctx.request_id}-x"))
        await kit.eventually(lambda: engine.running == 30)
        for ctx in contexts:
            ctx.cancel.cancel("client_disconnect")
        await kit.eventually(lambda: engine.running == 0 and len(engine.aborted) == 30)
        assert len(set(engine.aborted)) == 30
        assert not driver._sources

    async def test_a_finished_generation_is_not_aborted(self, driver, engine, ctx, kit):
        source = await driver.open(ctx, kit.request())
        await kit.drain(source)
        await source.cancel("client_disconnect")
        await driver.close()
        assert engine.aborted == []


class TestFacts:
    async def test_detection_takes_one_connection_and_no_generation(self, contract, engine):
        transport = GrpcioTransport(engine.url)
        found = await detect(transport, [make() for make in ADAPTERS.values()])
        assert found == contract
        assert engine.connections == 1
        assert engine.calls["HealthCheck"] == 0
        assert engine.requests == []
        await transport.close()

    async def test_model_information(self, contract, kit):
        engine = MockEngine(contract=contract, model="org/m", context_length=4096, default_sampling={"top_k": 20})
        async with engine, driver_to(engine.url, contract) as driver:
            info = await driver.info()
        assert (info.model_id, info.model_path, info.context_length) == ("org/m", "org/m", 4096)
        assert (info.max_input_length, info.vocab_size, info.is_generation) == (4095, mock.VOCAB_SIZE, True)
        assert info.eos_ids == (() if contract == "trtllm" else (EOS,))
        assert info.default_sampling == ({} if contract in ("trtllm", "mlx") else {"top_k": 20.0})
        assert SECRET not in str(info)

    @only(["vllm", "sglang", "mlx", "tokenspeed"])
    async def test_an_engine_that_only_embeds(self, contract):
        engine = MockEngine(contract=contract, generates=False)
        async with engine, driver_to(engine.url, contract) as driver:
            assert not (await driver.info()).is_generation

    async def test_health(self, contract, driver, engine):
        assert await driver.health()
        assert engine.calls["HealthCheck"] == 0
        assert await driver.health(thorough=True)
        engine.script = Script(healthy=False)
        assert not await driver.health(thorough=True)

    async def test_the_engines_own_check_may_take_longer_than_a_probe(self, driver, engine):
        engine.script = Script(health_delay=0.2)
        assert await driver.health(timeout=0.05, thorough=True)

    def test_engines_that_generate_for_their_check_have_the_time_they_need(self):
        patience = {name: adapter(name).health_secs for name in NAMES}
        assert patience == {"vllm": 5.0, "sglang": 25.0, "trtllm": 5.0, "tokenspeed": 25.0, "mlx": 5.0}

    @only(having("loads"))
    async def test_loads(self, contract, driver, engine):
        engine.script = Script(waiting=4, token_usage=0.25)
        [load] = await driver.loads()
        assert load == EngineLoad(waiting=4, max_tokens=32768, usage=0.25, max_running=256)

    async def test_the_tokenizer_bundle(self, driver):
        chunks = [chunk async for chunk in driver.tokenizer_bundle()]
        archive = b"".join(data for data, _ in chunks)
        assert archive == mock.archive(32768)
        assert chunks[-1][1] == hashlib.sha256(archive).hexdigest()

    @only(having("embed"))
    async def test_an_embedding(self, driver, engine, ctx):
        engine.script = Script(embedding=3)
        found = await driver.embed(ctx, "e-1", [1, 2])
        assert (found.vector, found.prompt_tokens) == ([3.0, 4.0, 5.0], 2)
        assert (await fails(driver.embed(ctx, "e-1", [-1]))).status == 400

    @only(having("flush_cache"))
    async def test_flushing_the_cache(self, driver, engine, ctx, kit):
        done = await driver.flush_cache()
        assert (done.success, done.message) == (True, "flushed")
        engine.script = Script(tokens=IDS, faults=(Fault(kind="stall", after_chunks=0),))
        await driver.open(ctx, kit.request())
        await kit.eventually(lambda: engine.running == 1)
        assert not (await driver.flush_cache()).success
        assert (await fails(driver.flush_cache(-1))).status == 400

    @only(having("profile"))
    async def test_a_profile(self, contract, driver):
        assert (await driver.start_profile(ProfileOptions())).success
        assert (await driver.stop_profile()).success
        wanted = driver.start_profile(ProfileOptions(num_steps=3, activities=("CPU",)))
        if contract == "vllm":
            assert (await fails(wanted)).status == 400
        else:
            assert (await wanted).success

    @only(lacking("flush_cache"))
    async def test_what_a_contract_has_no_call_for(self, driver, ctx):
        for call in (
            driver.flush_cache(),
            driver.start_profile(ProfileOptions()),
            driver.stop_profile(),
            driver.loads(),
            driver.embed(ctx, "e-1", [1]),
        ):
            error = await fails(call)
            assert (error.code, error.status) == ("not_implemented", 501)
