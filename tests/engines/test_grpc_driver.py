"""Generations on an engine, from dispatch to their one end (spec engine-contract 2.1, 2.2, 2.6, 4.3, 10.1)."""

import asyncio
from typing import ClassVar

import grpc
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core import clock
from smg.core.backends import Source, TokensBackend
from smg.core.context import RequestContext, TraceParent
from smg.core.errors import GatewayError
from smg.core.request import Logprobs, Sampling
from smg.engine_server.mock import EOS, SERVICE, Fault, MockEngine, Script
from smg.engines.source import GrpcSource
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.vllm.adapter import VllmAdapter

IDS = [10, 11, 12, 13]


@pytest.fixture(params=[GrpcioTransport, GrpcioTokenTransport, H2Transport], ids=["python", "grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture
async def engine():
    async with MockEngine(Script(tokens=IDS, eos=False)) as engine:
        yield engine


@pytest.fixture
async def driver(engine, kit):
    async with kit.driver(engine.url) as driver:
        yield driver


async def fails(awaitable):
    with pytest.raises(GatewayError) as caught:
        await awaitable
    return caught.value


def test_a_driver_is_a_tokens_backend(driver):
    backend: TokensBackend = driver
    assert backend.kind == "tokens"


class TestAnswers:
    async def test_ids_are_counted_once(self, driver, ctx, kit):
        source = await driver.open(ctx, kit.request())
        assert isinstance(source, Source)
        batches = await kit.drain(source)
        assert [token for batch in batches for token in batch.ids] == IDS
        assert [batch.finish for batch in batches if batch.finish] == ["stop"]
        assert batches[-1].prompt_tokens == 3
        assert await source.next() == []

    async def test_the_engine_is_asked_to_stream_ids_under_our_id(self, driver, engine, ctx, kit):
        ctx.trace = TraceParent("a" * 32, "b" * 16, state="vendor=1")
        await kit.drain(await driver.open(ctx, kit.request(id="r-7")))
        [seen] = engine.requests
        assert (seen.id, seen.request.stream) == ("r-7", True)
        assert list(seen.request.tokenized.input_ids) == [1, 2, 3]
        assert seen.metadata["traceparent"] == ctx.trace.header()
        assert seen.metadata["tracestate"] == "vendor=1"

    async def test_choices_interleave_and_end_one_by_one(self, driver, engine, ctx, kit):
        engine.script = Script(choices=[[1, 2, 3], [4], [5, 6]], eos=False)
        batches = await kit.drain(await driver.open(ctx, kit.request(n=3)))
        ids = {index: [t for b in batches if b.index == index for t in b.ids] for index in range(3)}
        assert ids == {0: [1, 2, 3], 1: [4], 2: [5, 6]}
        order = [batch.index for batch in batches]
        assert order != sorted(order)
        assert [batch.index for batch in batches if batch.finish] == [1, 2, 0]

    async def test_logprobs_have_one_row_per_id(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, eos=False, per_chunk=3, empty_chunks=True)
        batches = await kit.drain(await driver.open(ctx, kit.request(logprobs=Logprobs(2, prompt=True))))
        rows = [row for batch in batches for row in batch.logprobs or []]
        assert [row.token for row in rows] == IDS
        assert all(row.logprob == -0.5 and row.top == ((row.token + 1, -0.25), (row.token, -0.5)) for row in rows)
        [prompt] = [batch.prompt_logprobs for batch in batches if batch.prompt_logprobs]
        assert [(row.token, row.logprob) for row in prompt] == [(1, None), (2, -0.5), (3, -0.5)]

    async def test_stop_ids_and_end_of_sequence(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS)
        batches = await kit.drain(await driver.open(ctx, kit.request(stop_ids=(12,))))
        assert (batches[-1].finish, batches[-1].matched_stop) == ("stop", 12)
        batches = await kit.drain(await driver.open(ctx, kit.request()))
        assert [token for batch in batches for token in batch.ids] == [*IDS, EOS]

    async def test_a_message_beyond_4_mib(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=[7] * 50_000, eos=False, per_chunk=50_000)
        request = kit.request(logprobs=Logprobs(10), limits=kit.request().limits.__class__(max_tokens=None))
        batches = await kit.drain(await driver.open(ctx, request))
        rows = [row for batch in batches for row in batch.logprobs or []]
        assert len(rows) == 50_000
        assert len(rows[-1].top) == 10


class TestFailures:
    @pytest.mark.parametrize("after", [None, 0])
    async def test_before_the_first_message_the_status_speaks_even_after_early_headers(
        self, driver, engine, ctx, kit, after
    ):
        engine.script = Script(tokens=IDS, faults=(Fault(status=grpc.StatusCode.UNAVAILABLE, after_chunks=after),))
        error = await fails((await driver.open(ctx, kit.request())).next())
        assert (error.status, error.worker_fault, error.retryable) == (503, True, True)

    async def test_what_came_before_a_failure_is_not_lost(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, faults=(Fault(status=grpc.StatusCode.INTERNAL, after_chunks=2),))
        source = await driver.open(ctx, kit.request())
        ids = []
        while len(ids) < 2:
            ids += [token for batch in await source.next() for token in batch.ids]
        assert ids == IDS[:2]
        error = await fails(source.next())
        assert (error.code, error.status) == ("worker_stream_failed", 502)
        assert (await fails(source.next())).code == "worker_stream_failed"  # and it stays failed
        await source.cancel("stop")
        assert engine.aborted == []  # the engine ended it, there is nothing to abort

    @pytest.mark.parametrize("after", [0, 2])
    async def test_end_of_stream_before_complete(self, driver, engine, ctx, kit, after):
        engine.script = Script(tokens=IDS, faults=(Fault(kind="eof", after_chunks=after),))
        source = await driver.open(ctx, kit.request())
        error = await fails(kit.drain(source))
        assert (error.code, error.status, error.worker_fault) == ("worker_stream_failed", 502, True)

    @pytest.mark.parametrize("finish", ["abort", "error"])
    async def test_an_engine_that_gives_up_has_failed(self, driver, engine, ctx, kit, finish):
        engine.script = Script(tokens=IDS, finish=finish)
        error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.code, error.worker_fault) == ("worker_stream_failed", True)

    async def test_the_constraint_trailer(self, driver, engine, ctx, kit):
        fault = Fault(
            status=grpc.StatusCode.FAILED_PRECONDITION, after_chunks=1, trailers=(("smg-constraint-failed", "engine"),)
        )
        engine.script = Script(tokens=IDS, faults=(fault,))
        error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.code, error.status, error.worker_fault) == ("constraint_failed", 422, False)

    async def test_the_engine_cancels_what_nobody_asked_it_to(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, faults=(Fault(status=grpc.StatusCode.CANCELLED, after_chunks=0),))
        error = await fails((await driver.open(ctx, kit.request())).next())
        assert (error.status, error.worker_fault) == (502, True)

    async def test_a_killed_engine(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, faults=(Fault(kind="stall", after_chunks=1),))
        source = await driver.open(ctx, kit.request())
        await source.next()
        await engine.kill()
        error = await fails(source.next())
        assert (error.code, error.worker_fault) == ("worker_stream_failed", True)

    async def test_the_clients_mistake_is_explained(self, driver, ctx, kit):
        error = await fails((await driver.open(ctx, kit.request(ids=[1] * 40_000))).next())
        assert (error.status, error.code) == (400, "invalid_request")
        assert "40000 tokens" in error.message
        assert (await fails(driver.open(ctx, kit.request(n=0)))).status == 400
        assert (await fails(driver.open(ctx, kit.request(sampling=Sampling(temperature=-1.0))))).status == 400

    async def test_what_is_no_answer(self, ctx, kit):
        async def Generate(request, context):
            yield pb.GenerateResponse(chunk=pb.GenerateStreamChunk(token_ids=[1])).SerializeToString()
            yield b"\xff\xff"
            await asyncio.Event().wait()

        async with kit.serve(SERVICE, Generate=Generate) as address, kit.driver(f"grpc://{address}") as driver:
            source = await driver.open(ctx, kit.request())
            error = await fails(kit.drain(source))
            assert (error.code, error.worker_fault) == ("worker_stream_failed", True)


class TestCancellation:
    @pytest.fixture
    async def endless(self, engine):
        engine.script = Script(tokens=IDS, faults=(Fault(kind="stall", after_chunks=2),))

    async def test_one_reset_and_one_abort(self, endless, driver, engine, ctx, kit):
        source = await driver.open(ctx, kit.request(id="r-1"))
        await source.next()
        await source.cancel("client_disconnect")
        await source.cancel("deadline")
        ctx.cancel.cancel("client_disconnect")
        await kit.eventually(lambda: engine.aborted == ["r-1"] and engine.running == 0)
        await asyncio.sleep(0.05)
        assert engine.aborted == ["r-1"]
        assert engine.requests[0].state in ("cancelled", "aborted")
        assert (await fails(source.next())).code == "client_disconnected"

    async def test_whatever_happens_the_call_is_cancelled_once(self, ctx, kit):
        class Recording:
            cancels = 0
            aborts: ClassVar[list[str]] = []

            def cancel(self):
                self.cancels += 1

            def abort(self, request_id, reason):
                self.aborts.append((request_id, reason))

            def forget(self, source):
                pass

        seen = Recording()
        source = GrpcSource(seen, ctx, kit.request(), seen, VllmAdapter().decoder(kit.request()))
        ctx.cancel.cancel("client_disconnect")
        for reason in ("deadline", "stop"):
            await source.cancel(reason)
        assert (seen.cancels, seen.aborts) == (1, [("req-1", "client_disconnect")])

    async def test_a_local_stop_just_ends(self, endless, driver, engine, ctx, kit):
        source = await driver.open(ctx, kit.request(id="r-1"))
        await source.next()
        await source.cancel("stop")
        assert await source.next() == []
        await kit.eventually(lambda: engine.aborted == ["r-1"])

    @pytest.mark.parametrize(
        ("reason", "code", "status"),
        [
            ("client_disconnect", "client_disconnected", 499),
            ("deadline", "deadline_exceeded", 504),
            ("shutdown", "shutting_down", 503),
            ("preempted", "overloaded", 503),
        ],
    )
    async def test_the_context_cancels_a_waiting_reader(self, endless, driver, engine, ctx, kit, reason, code, status):
        source = await driver.open(ctx, kit.request())
        waiting = asyncio.create_task(kit.drain(source))
        await kit.eventually(lambda: engine.running == 1)
        ctx.cancel.cancel(reason)
        error = await fails(waiting)
        assert (error.code, error.status, error.worker_fault) == (code, status, False)
        await kit.eventually(lambda: len(engine.aborted) == 1 and engine.running == 0)

    async def test_the_deadline(self, endless, driver, engine, kit):
        ctx = RequestContext(request_id="req", deadline=clock.monotonic() + 0.2)
        error = await fails(kit.drain(await driver.open(ctx, kit.request())))
        assert (error.code, error.worker_fault) == ("deadline_exceeded", False)
        await kit.eventually(lambda: len(engine.aborted) == 1)
        assert (await fails(driver.open(ctx, kit.request()))).code == "deadline_exceeded"
        assert len(engine.requests) == 1

    async def test_a_cancelled_request_is_not_dispatched(self, driver, engine, ctx, kit):
        ctx.cancel.cancel("client_disconnect")
        assert (await fails(driver.open(ctx, kit.request()))).status == 499
        assert engine.requests == []

    async def test_cancelling_before_anything_was_sent(self, driver, engine, kit):
        contexts = [RequestContext(request_id=f"req-{number}") for number in range(20)]
        for ctx in contexts:
            await driver.open(ctx, kit.request(id=ctx.request_id))
            ctx.cancel.cancel("client_disconnect")
        await kit.eventually(lambda: len(engine.aborted) == 20)
        await kit.eventually(lambda: engine.running == 0)
        assert not driver._sources
        await kit.eventually(lambda: not any(connection.calls for connection in driver._transport._connections))

    async def test_a_finished_generation_is_not_aborted(self, driver, engine, ctx, kit):
        source = await driver.open(ctx, kit.request())
        await kit.drain(source)
        await source.cancel("client_disconnect")
        ctx.cancel.cancel("client_disconnect")
        await driver.close()
        assert engine.aborted == []
        assert engine.requests[0].state == "done"

    async def test_a_failing_abort_is_nobodys_problem(self, driver, engine, ctx, kit):
        engine.script = Script(
            tokens=IDS,
            faults=(Fault(kind="stall", after_chunks=0), Fault(rpc="Abort", status=grpc.StatusCode.INTERNAL)),
        )
        source = await driver.open(ctx, kit.request())
        await kit.eventually(lambda: engine.running == 1)
        await source.cancel("shutdown")
        await driver.close()
        assert engine.calls["Abort"] == 1

    async def test_closing_cancels_what_runs_and_retiring_waits_for_it(self, driver, engine, ctx, kit):
        engine.script = Script(tokens=IDS, eos=False, chunk_delay=0.05)
        source = await driver.open(ctx, kit.request())
        driver.retire()
        assert [token for batch in await kit.drain(source) for token in batch.ids] == IDS
        await kit.eventually(lambda: driver._transport._closed)

        engine.script = Script(tokens=IDS, faults=(Fault(kind="stall", after_chunks=0),))
        async with kit.driver(engine.url) as other:
            source = await other.open(ctx, kit.request(id="r-2"))
            await kit.eventually(lambda: engine.running == 1)
            await other.close()
            assert (await fails(source.next())).code == "shutting_down"
            assert engine.aborted == ["r-2"]

    async def test_many_disconnects_leave_nothing_behind(self, endless, driver, engine, kit):
        contexts = [RequestContext(request_id=f"req-{number}") for number in range(60)]
        sources = [await driver.open(ctx, kit.request(id=ctx.request_id)) for ctx in contexts]
        await kit.eventually(lambda: engine.running == 60)
        for ctx in contexts:
            ctx.cancel.cancel("client_disconnect")
        await kit.eventually(lambda: engine.running == 0 and len(engine.aborted) == 60)
        assert sorted(engine.aborted) == sorted(ctx.request_id for ctx in contexts)
        assert not driver._sources
        assert [(await fails(source.next())).status for source in sources] == [499] * 60


class TestFacts:
    async def test_info_health_loads(self, driver, engine):
        info = await driver.info()
        assert (info.model_id, info.context_length, info.eos_ids) == ("mock-model", 32768, (EOS,))
        assert info.labels["max_num_seqs"] == "256"
        assert await driver.health()
        assert engine.calls["HealthCheck"] == 0  # the standard service answered
        assert await driver.health(thorough=True)
        assert engine.calls["HealthCheck"] == 1
        [load] = await driver.loads()
        assert (load.running, load.max_tokens) == (0, 32768)

    async def test_an_unhealthy_engine(self, driver, engine, kit):
        engine.script = Script(healthy=False)
        assert not await driver.health(thorough=True)
        async with asyncio.timeout(5):
            while await driver.health():  # noqa: ASYNC110 - the mock has no event for it
                await asyncio.sleep(0.01)

    async def test_without_the_standard_service_the_engines_own_is_asked(self, kit):
        async def HealthCheck(request, context):
            return pb.HealthCheckResponse(healthy=True).SerializeToString()

        async with kit.serve(SERVICE, HealthCheck=HealthCheck) as address, kit.driver(f"grpc://{address}") as driver:
            assert await driver.health()

    async def test_the_bundle_arrives_in_chunks_and_its_digest_last(self, driver, engine):
        engine.script = Script(bundle=b"0123456789", bundle_chunk=4)
        chunks = [chunk async for chunk in driver.tokenizer_bundle()]
        assert [data for data, _ in chunks] == [b"0123", b"4567", b"89"]
        assert [bool(digest) for _, digest in chunks] == [False, False, True]
        engine.script = Script(faults=(Fault(rpc="GetTokenizer", status=grpc.StatusCode.FAILED_PRECONDITION),))
        with pytest.raises(GatewayError):
            [chunk async for chunk in driver.tokenizer_bundle()]


class TestAnotherContract:
    """An engine of another contract has taken the address, and answers every call with "Method not found!"."""

    async def test_what_every_engine_has_is_the_workers_fault(self, ctx, kit):
        async with MockEngine(contract="sglang") as engine, kit.driver(engine.url) as driver:
            source = await driver.open(ctx, kit.request())
            for error in (await fails(source.next()), await fails(driver.info())):
                assert (error.code, error.status, error.worker_fault) == ("worker_failed", 502, True)
                assert error.rpc == "UNIMPLEMENTED"

    async def test_what_an_engine_need_not_have_is_501(self, ctx, kit):
        async with MockEngine(contract="sglang") as engine, kit.driver(engine.url) as driver:
            error = await fails(driver.embed(ctx, "e1", [1, 2]))
            assert (error.code, error.status, error.worker_fault) == ("not_implemented", 501, False)
