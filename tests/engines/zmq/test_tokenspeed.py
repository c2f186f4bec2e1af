"""TokenSpeed's scheduler over ZeroMQ: positions, columns, one engine for all processes (spec engine-contract 6.6)."""

import asyncio
import contextlib

import msgspec
import pytest

from smg.core.backends import EngineRequest
from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import Constraint, Limits, Logprobs, Sampling
from smg.engines.zmq.address import parse
from smg.engines.zmq.driver import ZmqDriver
from smg.engines.zmq.frames import Told
from smg.engines.zmq.tokenspeed import TokenSpeedWire
from tests.engines.zmq.rebound import rebound
from tests.engines.zmq.scheduler import IDS, PARAMS, RID, STOP_IDS, MockScheduler
from tests.engines.zmq.test_zmq import LABELS, drain, free_url, ids, until

OFF = 2**30


def request(**changes) -> EngineRequest:
    fields = {"id": "r", "ids": [1, 2, 3], "sampling": Sampling(), "limits": Limits(64), "stop_ids": (9,)}
    return EngineRequest(**(fields | changes))


class Place:
    """Control's driver, two workers' drivers that know the contract, and the scheduler."""

    def __init__(self, control: ZmqDriver, workers: list[ZmqDriver], loads: list) -> None:
        self.control, self.workers, self.loads = control, workers, loads
        self.scheduler = MockScheduler(parse(control.url).handshake)

    async def run(self, process: int = 1, **changes) -> list:
        source = await self.workers[process - 1].open(RequestContext("q"), request(**changes))
        return await drain(source)

    async def served(self, process: int = 1, **changes) -> list[int]:
        """The ids of an answer, asked for again as long as the engine is said to be gone.

        A request that is sent while the engine changes may go where nobody reads any more, and fails then.
        """
        async with asyncio.timeout(10):
            while True:
                try:
                    return ids(await self.run(process, **changes))
                except GatewayError as error:
                    assert error.worker_fault
                await asyncio.sleep(0.01)


@pytest.fixture
async def at(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    url, loads = free_url(), []
    control = ZmqDriver(url, 0, 3, LABELS)
    workers = [ZmqDriver(url, number, labels=LABELS, on_load=loads.append, runtime="tokenspeed") for number in (1, 2)]
    try:
        place = Place(control, workers, loads)
        async with place.scheduler:
            await until(lambda: control._handshake.facts is not None)
            yield place
    finally:
        for driver in (*workers, control):
            await driver.close()


class TestHandshake:
    async def test_what_the_engine_is_it_tells_itself(self, at):
        info = await at.control.info()
        assert (at.control.runtime, info.model_id, info.context_length) == ("tokenspeed", "m", 128)
        assert info.labels["max_running_requests"] == "8"
        assert await at.control.health(1.0)

    async def test_what_it_has_not_is_not_offered(self, at):
        await at.control.info()
        assert {"generate", "n", "seed", "logprobs", "json_schema"} <= at.control.capabilities
        assert not at.control.capabilities & {"prompt_logprobs", "flush_cache", "loads", "embed"}
        assert (await at.control.info()).lacks == {"dp_rank"}
        with pytest.raises(GatewayError) as caught:
            await at.control.flush_cache()
        assert caught.value.status == 501

    async def test_a_worker_that_learns_the_contract_later(self, at):
        late = at.workers[0]
        late.relabel(LABELS, "vllm")
        late.relabel(LABELS, "tokenspeed")
        assert ids(await at.run()) == [5, 6, 7]

    def test_no_other_contract(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        with pytest.raises(ValueError, match="no sglang over ZeroMQ"):
            ZmqDriver(free_url(), 1, runtime="sglang")


class TestGenerations:
    async def test_all_processes_share_the_engine_and_each_gets_its_own(self, at):
        at.scheduler.tokens = lambda asked: [asked[IDS][0]] * 5
        runs = [at.run(1 + number % 2, id=f"r{number}", ids=[number + 10]) for number in range(40)]
        found = await asyncio.gather(*runs)
        assert [ids(batches) for batches in found] == [[number + 10] * 5 for number in range(40)]
        assert all(driver._sources == {} for driver in at.workers)

    async def test_ids_counts_and_end(self, at):
        batches = await at.run()
        assert ids(batches) == [5, 6, 7]
        assert [batch.finish for batch in batches if batch.finish] == ["stop"]
        assert (batches[0].prompt_tokens, batches[0].cached_tokens) == (3, 1)
        assert at.scheduler.aborts == []

    async def test_a_stop_id_and_the_limit(self, at):
        at.scheduler.tokens = lambda asked: [5, 9, 6]
        last = (await at.run())[-1]
        assert (last.ids, last.finish, last.matched_stop) == ([9], "stop", 9)
        assert (await at.run(id="r2", limits=Limits(1)))[-1].finish == "length"

    async def test_several_choices_are_requests_of_their_own(self, at):
        at.scheduler.tokens = lambda asked: [int(asked[RID][-1]) + 10, 4]
        batches = await at.run(n=3, sampling=Sampling(seed=7))
        assert [ids(batches, choice) for choice in range(3)] == [[10, 4], [11, 4], [12, 4]]
        assert [(asked[RID], asked[PARAMS][23]) for asked in at.scheduler.adds] == [("r-0", 7), ("r-1", 8), ("r-2", 9)]

    async def test_log_probabilities_of_the_sampled_tokens(self, at):
        batches = await at.run(logprobs=Logprobs(0))
        rows = [row for batch in batches for row in batch.logprobs or ()]
        assert rows == [TokenLogprobs(token, -0.5) for token in (5, 6, 7)]
        assert {batch.logprobs for batch in await at.run(id="r2")} == {None}

    async def test_loads_come_with_the_steps(self, at):
        await at.run()
        assert (at.loads[0].running, at.loads[0].waiting, at.loads[0].usage) == (1, 3, 0.25)

    async def test_an_older_scheduler_tells_no_load(self, at):
        at.scheduler.tail = []
        assert ids(await at.run()) == [5, 6, 7]
        assert at.loads == []

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"ids": []}, "empty_input"),
            ({"ids": [1] * 128}, "context_length_exceeded"),
            ({"ids": [50], "vocab_size": 50}, "invalid_value"),
            ({"lora": "x"}, "unsupported_parameter"),
            ({"logprobs": Logprobs(2)}, "unsupported_parameter"),
            ({"logprobs": Logprobs(0, prompt=True)}, "unsupported_parameter"),
        ],
    )
    async def test_what_it_would_not_take_never_reaches_it(self, at, changes, code):
        with pytest.raises(GatewayError) as caught:
            await at.run(**changes)
        assert (caught.value.code, caught.value.status) == (code, 400)
        assert at.scheduler.adds == []


class TestEnds:
    async def test_RL_04_cancelling_sends_one_abort_of_all_choices_that_run(self, at):
        at.scheduler.stall = True
        ctx = RequestContext("q")
        source = await at.workers[1].open(ctx, request(n=2))
        await until(lambda: len(at.scheduler.adds) == 2)
        ctx.cancel.cancel("client_disconnect")
        with pytest.raises(GatewayError) as caught:
            await source.next()
        assert caught.value.code == "client_disconnected"
        await until(lambda: at.scheduler.aborts == ["r-0", "r-1"])

    @pytest.mark.parametrize("reason", ["abort", "error"])
    async def test_an_engine_that_gives_up(self, at, reason):
        at.scheduler.ends = reason
        with pytest.raises(GatewayError) as caught:
            await at.run()
        assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)

    async def test_a_reason_nobody_knows_is_a_stop(self, at):
        at.scheduler.ends = "something new"
        assert (await at.run())[-1].finish == "stop"

    async def test_the_word_of_a_dying_engine_fails_what_runs_in_all_processes(self, at):
        at.scheduler.stall = True
        sources = [await driver.open(RequestContext("q"), request(id=driver.url)) for driver in at.workers]
        await until(lambda: len(at.scheduler.adds) == 2)
        await at.scheduler.send(0, b"ENGINE_CORE_DEAD")
        for source in sources:
            with pytest.raises(GatewayError) as caught:
                await source.next()
            assert (caught.value.status, caught.value.worker_fault) == (503, True)
        assert not await at.control.health(1.0)

    async def test_an_engine_that_dies_without_a_word_fails_what_runs(self, at):
        at.scheduler.tokens = lambda asked: [5] * 60
        at.scheduler.delay = 0.05
        source = await at.workers[0].open(RequestContext("q"), request())
        assert set(ids(await source.next())) == {5}
        await at.scheduler.__aexit__()
        with pytest.raises(GatewayError) as caught:
            await drain(source)
        assert (caught.value.code, caught.value.worker_fault) == ("worker_failed", True)

    async def test_an_engine_that_starts_again_serves_all_processes_again(self, at):
        await at.scheduler.__aexit__()
        async with MockScheduler(parse(at.control.url).handshake, lambda asked: [8]) as again:
            for process in (1, 2):
                assert await at.served(process, id=f"r{process}") == [8]
            assert {asked[RID] for asked in again.adds} == {"r1", "r2"}

    async def test_a_control_process_that_starts_later_goes_on(self, at):
        await at.control.close()
        again = await rebound(lambda: ZmqDriver(at.control.url, 0, 3, LABELS))

        async def connected() -> bool:
            with contextlib.suppress(GatewayError):
                return await again.health(1.0)
            return False

        async with asyncio.timeout(5):
            while not await connected():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert await at.served() == [5, 6, 7]
        await again.close()

    async def test_messages_that_cannot_be_read_harm_nobody(self, at):
        odd = ["BatchTokenIDOutSlim", ["r"], [[1]], [], [3], [1], [0], [[]], [[]]]
        other = ["SomethingElse", ["r"]]
        for junk in (b"", b"\xc1", b"\x80", msgspec.msgpack.encode(odd), msgspec.msgpack.encode(other)):
            await at.scheduler.send(0, junk)
        assert ids(await at.run()) == [5, 6, 7]


class TestPositions:
    def sent(self, **changes):
        return msgspec.msgpack.decode(TokenSpeedWire().add(request(**changes), 0, 1, Told(128))[0])

    def test_a_bare_request(self):
        assert self.sent() == [
            "TokenizedGenerateReqInput",
            "r",
            *(None, None),
            [1, 2, 3],
            [
                *(64, None, [9]),
                *(1.0, 1.0, OFF, 0.0, 0.0, 0.0, 1.0),
                0,
                *(None, None, None, None),
                *(False, True, True, True),
                *(None, None, None, None, None, None),
                *(1, [], 0, True),
            ],
            *(False, -1, 0, None),
            True,
        ]

    def test_every_sampling_parameter(self):
        sampling = Sampling(
            temperature=0.5,
            top_p=0.9,
            top_k=7,
            min_p=0.1,
            frequency_penalty=0.2,
            presence_penalty=0.3,
            repetition_penalty=1.1,
            seed=42,
            logit_bias={5: -1.0},
        )
        params = self.sent(sampling=sampling, limits=Limits(8, 2), ignore_eos=True, logprobs=Logprobs(0))[PARAMS]
        assert params[:11] == [8, None, [9], 0.5, 0.9, 7, 0.1, 0.2, 0.3, 1.1, 2]
        assert (params[15], params[22], params[23]) == (True, {"5": -1.0}, 42)

    @pytest.mark.parametrize(
        ("seed", "sent"), [(0, 0), (2**63 - 1, 2**63 - 1), (2**63 + 5, 5), (-1, 2**63 - 1), (-7, 2**63 - 7)]
    )
    def test_seeds_that_differ_stay_different(self, seed, sent):
        assert self.sent(sampling=Sampling(seed=seed))[PARAMS][23] == sent

    def test_temperature_zero_is_the_best_token(self):
        params = self.sent(sampling=Sampling(temperature=0.0, top_k=9))[PARAMS]
        assert (params[3], params[5]) == (1.0, 1)

    def test_without_a_limit_the_context_is(self):
        assert self.sent(limits=Limits())[PARAMS][0] == 125

    @pytest.mark.parametrize(
        ("constraint", "place"),
        [
            (Constraint("json_schema", '{"type":"string"}'), 11),
            (Constraint("regex", "a+"), 12),
            (Constraint("grammar", 'root ::= "a"'), 13),
            (Constraint("structural_tag", "{}"), 14),
        ],
    )
    def test_constraints(self, constraint, place):
        params = self.sent(constraint=constraint)[PARAMS]
        assert [params[each] for each in range(11, 15) if each != place] == [None] * 3
        assert params[place] == constraint.value

    @pytest.mark.parametrize(
        ("constraint", "place", "value"),
        [
            (Constraint("json_object"), 11, '{"type":"object"}'),
            (Constraint("choice", choices=("a", "b")), 12, "(a|b)"),
        ],
    )
    def test_constraints_it_has_no_place_for(self, constraint, place, value):
        assert self.sent(constraint=constraint)[PARAMS][place] == value

    def test_stop_ids_are_where_the_mock_looks(self):
        assert self.sent()[PARAMS][STOP_IDS] == [9]


class TestRanks:
    """Each data-parallel rank is a scheduler of its own, behind the same address."""

    @pytest.fixture
    async def at(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
        url, loads, labels = free_url(), [], LABELS | {"dp_size": "2"}
        control = ZmqDriver(url, 0, 2, LABELS)
        worker = ZmqDriver(url, 1, labels=labels, on_load=loads.append, runtime="tokenspeed")
        place = Place(control, [worker], loads)
        place.ranks = [MockScheduler(parse(url).handshake, rank=rank, ranks=2) for rank in (0, 1)]
        try:
            async with place.ranks[0]:
                await until(lambda: control._handshake.ranks)
                place.early = control._handshake.facts
                async with place.ranks[1]:
                    await until(lambda: control._handshake.facts is not None)
                    yield place
        finally:
            for driver in (worker, control):
                await driver.close()

    async def test_the_engine_is_there_when_all_ranks_are(self, at):
        assert at.early is None
        info = await at.control.info()
        assert (info.labels["dp_size"], info.lacks) == ("2", frozenset())
        assert await at.control.health(1.0)

    async def test_a_pinned_request_goes_to_its_rank(self, at):
        for rank in (1, 0, 1):
            await at.run(dp_rank=rank)
        assert [len(each.adds) for each in at.ranks] == [1, 2]

    @pytest.mark.parametrize("rank", [2, -1])
    async def test_a_rank_that_there_is_not_is_the_client_s_mistake(self, at, rank):
        with pytest.raises(GatewayError, match="ranks 0 to 1") as caught:
            await at.run(dp_rank=rank)
        assert (caught.value.status, caught.value.param) == (400, "data_parallel_rank")
        assert at.workers[0]._sources == {}

    async def test_others_go_to_each_in_turn(self, at):
        for _ in range(4):
            await at.run()
        assert [len(each.adds) for each in at.ranks] == [2, 2]

    async def test_an_abort_reaches_who_works_on_it(self, at):
        at.ranks[1].stall = True
        source = await at.workers[0].open(RequestContext("q"), request(dp_rank=1))
        await until(lambda: at.ranks[1].adds)
        await source.cancel("client_disconnect")
        await until(lambda: at.ranks[1].aborts)
        assert at.ranks[0].aborts == []

    async def test_loads_tell_their_rank(self, at):
        await at.run(dp_rank=1)
        await at.run(dp_rank=0)
        assert {load.dp_rank for load in at.loads} == {0, 1}

    async def test_a_control_process_that_starts_later_knows_all(self, at):
        await at.control.close()
        again = await rebound(lambda: ZmqDriver(at.control.url, 0, 2, LABELS))
        assert (await again.info()).labels["dp_size"] == "2"
        await again.close()
