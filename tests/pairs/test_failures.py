"""One engine of a pair fails, or the client leaves: who is blamed, who is stopped, and that nothing stays behind.

Field case PD-01; spec routing 11 [cb_*: PD blames both], engine-contract 5.1 and 5.2.
"""

import asyncio

import grpc
import pytest

from smg._native.region import FAILURES, PROCESSED
from smg.config.settings import RoutingSettings, Settings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engine_server.mock import Fault, Script
from tests.pairs.pools import PAIRED, TEXT, eventually, pairs

MEETING = ("sglang", "tokenspeed")
SLOW = Script.text(TEXT, first_delay=5.0)
ONCE = Settings(routing=RoutingSettings(disable_retries=True))


def fault(**fields) -> Script:
    return Script.text(TEXT, faults=(Fault(**fields),))


def failures(place) -> dict[str, int]:
    return {name: place.fleet.region.worker_get(place.worker(name).slot, FAILURES) for name in place.engines}


def processed(place) -> dict[str, int]:
    return {name: place.fleet.region.worker_get(place.worker(name).slot, PROCESSED) for name in place.engines}


@pytest.mark.parametrize("contract", PAIRED)
class TestPrefillFails:
    async def test_PD_01_a_prefill_worker_that_is_out_costs_503_and_no_decode_call(self, contract):
        async with pairs(contract) as place:
            place.fleet.set("p1", "not_ready")
            with pytest.raises(GatewayError) as caught:
                await place.text()
            assert (caught.value.status, caught.value.code) == (503, "no_available_workers")
            assert place.engines["d1"].requests == []
            assert place.idle()
            place.fleet.set("p1", "ready")
            assert await place.text() == TEXT
            assert failures(place) == {"p1": 0, "d1": 0}
            assert processed(place) == {"p1": 1, "d1": 1}

    @pytest.mark.parametrize("after", [None, 0])
    async def test_another_one_is_tried_and_the_decode_worker_is_not_blamed(self, contract, after):
        scripts = {"p1": fault(after_chunks=after), "p2": Script.text("x")}
        async with pairs(contract, "p1", "p2", "d1", scripts=scripts) as place:
            for number in range(4):
                assert await place.text(RequestContext(f"r{number}")) == TEXT
            assert failures(place)["p1"] > 0
            assert (failures(place)["p2"], failures(place)["d1"]) == (0, 0)
            assert place.metric("smg_pd_leg_failures_total\0m\0prefill") == failures(place)["p1"]
            assert place.metric("smg_pd_leg_failures_total\0m\0decode") == 0
            await eventually(place.idle)

    async def test_death_after_its_token_and_before_its_end_is_noticed_too(self, contract):
        scripts = {"p1": fault(after_chunks=1), "d1": Script.text(TEXT, first_delay=0.2), "p2": Script.text("x")}
        async with pairs(contract, "p1", "p2", "d1", scripts=scripts) as place:
            for number in range(4):
                assert await place.text(RequestContext(f"r{number}")) == TEXT
            assert failures(place)["p1"] > 0
            assert failures(place)["d1"] == 0
            await eventually(place.idle)

    async def test_the_only_one_fails_the_client_gets_its_error(self, contract):
        scripts = {"p1": fault(status=grpc.StatusCode.INTERNAL, message="CUDA error in /opt/engine.py")}
        async with pairs(contract, scripts=scripts, settings=ONCE) as place:
            with pytest.raises(GatewayError) as caught:
                await place.text()
            assert caught.value.status == 500
            assert "CUDA" not in caught.value.message
            await eventually(place.idle)
            if contract == "vllm":
                assert place.engines["d1"].requests == []
            else:
                # Aborted, unless it has noticed by itself first that nobody hands it the prompt's cache.
                decode = place.engines["d1"]
                assert decode.aborted in ([], [decode.requests[0].id])

    async def test_a_killed_one_is_blamed_although_its_partner_complains_as_well(self, contract):
        scripts = {"p1": SLOW, "p2": Script.text("x")}
        async with pairs(contract, "p1", "p2", "d1", scripts=scripts) as place:
            running = [asyncio.create_task(place.text(RequestContext(f"r{number}"))) for number in range(4)]
            await eventually(lambda: place.engines["p1"].running > 0)
            await place.engines["p1"].kill()
            assert await asyncio.gather(*running) == [TEXT] * 4
            assert failures(place)["p1"] > 0
            assert (failures(place)["p2"], failures(place)["d1"]) == (0, 0)
            await eventually(place.idle)

    async def test_one_that_takes_too_long_gives_way_to_another(self, contract):
        scripts = {"p1": fault(kind="stall", after_chunks=0), "p2": Script.text("x")}
        async with pairs(contract, "p1", "p2", "d1", scripts=scripts, patience=1.0) as place:
            texts = await asyncio.gather(*(place.text(RequestContext(f"r{number}")) for number in range(2)))
            assert texts == [TEXT, TEXT]
            assert failures(place) == {"p1": 1, "p2": 0, "d1": 0}
            await eventually(place.idle)

    async def test_RL_02_a_busy_one_is_passed_over_and_keeps_its_name(self, contract):
        scripts = {"p1": fault(status=grpc.StatusCode.RESOURCE_EXHAUSTED), "p2": Script.text("x")}
        async with pairs(contract, "p1", "p2", "d1", scripts=scripts) as place:
            for number in range(2):
                assert await place.text(RequestContext(f"r{number}")) == TEXT
            assert set(failures(place).values()) == {0}
            await eventually(place.idle)

    async def test_RL_01_a_bad_request_is_answered_once(self, contract):
        scripts = {"p1": fault(status=grpc.StatusCode.INVALID_ARGUMENT, message="the prompt is odd")}
        async with pairs(contract, "p1", "d1", "d2", scripts=scripts) as place:
            with pytest.raises(GatewayError) as caught:
                await place.text()
            assert caught.value.status == 400
            assert len(place.engines["p1"].requests) == 1
            assert set(failures(place).values()) == {0}
            await eventually(place.idle)


@pytest.mark.parametrize("contract", PAIRED)
class TestDecodeFails:
    @pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
    async def test_another_one_is_tried_and_the_prefill_worker_is_not_blamed(self, contract, status):
        scripts = {"d1": fault(status=status), "d2": Script.text(TEXT)}
        async with pairs(contract, "p1", "d1", "d2", scripts=scripts) as place:
            for number in range(4):
                assert await place.text(RequestContext(f"r{number}")) == TEXT
            assert failures(place)["d1"] > 0
            assert (failures(place)["p1"], failures(place)["d2"]) == (0, 0)
            assert place.metric("smg_pd_leg_failures_total\0m\0decode") == failures(place)["d1"]
            assert place.metric("smg_pd_leg_failures_total\0m\0prefill") == 0
            await eventually(lambda: place.fleet.idle() and place.engines["p1"].running == 0)

    async def test_a_killed_one_is_blamed_alone(self, contract):
        async with pairs(contract, "p1", "d1", "d2", scripts={"d1": SLOW, "d2": Script.text(TEXT)}) as place:
            running = [asyncio.create_task(place.text(RequestContext(f"r{number}"))) for number in range(4)]
            await eventually(lambda: place.engines["d1"].running > 0)
            await place.engines["d1"].kill()
            assert await asyncio.gather(*running) == [TEXT] * 4
            assert failures(place)["d1"] > 0
            assert (failures(place)["p1"], failures(place)["d2"]) == (0, 0)
            await eventually(lambda: place.fleet.idle() and place.engines["p1"].running == 0)

    async def test_RL_03_once_it_has_begun_there_is_no_second_try(self, contract):
        scripts = {"d1": fault(after_chunks=3), "d2": fault(after_chunks=3)}
        async with pairs(contract, "p1", "d1", "d2", scripts=scripts) as place:
            # The other one is well, but has no part of this answer: pairs are not resumed.
            text, failure = await place.stream()
            assert TEXT.startswith(text)
            assert text
            assert failure.code == "worker_stream_failed"
            assert sorted(failures(place).items())[:2] in ([("d1", 0), ("d2", 1)], [("d1", 1), ("d2", 0)])
            # It has done its part; whether its end was read before it was let go of is a matter of moments.
            assert failures(place)["p1"] == 0
            assert processed(place)["p1"] <= 1
            await eventually(place.idle)


@pytest.mark.parametrize("contract", MEETING)
async def test_a_prefill_worker_that_fails_after_the_answer_has_begun_costs_only_itself(contract):
    scripts = {"p1": fault(after_chunks=1), "d1": Script.text(TEXT, chunk_delay=0.02)}
    async with pairs(contract, scripts=scripts, settings=ONCE) as place:
        texts = []
        for number in range(8):
            try:
                texts.append(await place.text(RequestContext(f"r{number}")))
            except GatewayError:
                continue
        # Whether its end comes before the other's first token is chance; the answer is whole or there is none.
        assert set(texts) <= {TEXT}
        assert failures(place) == {"p1": 8, "d1": 0}
        await eventually(place.idle)


@pytest.mark.parametrize("contract", PAIRED)
class TestTheClientLeaves:
    async def test_RL_04_both_engines_are_told_and_nobody_is_blamed(self, contract):
        scripts = {"p1": SLOW, "d1": SLOW}
        async with pairs(contract, scripts=scripts) as place:
            ctx = RequestContext("r", endpoint="/t")
            running = asyncio.create_task(place.text(ctx))
            legs = ("p1", "d1") if contract in MEETING else ("p1",)
            await eventually(lambda: all(place.engines[name].running == 1 for name in legs))
            ctx.cancel.cancel("client_disconnect")
            with pytest.raises(GatewayError) as caught:
                await running
            assert caught.value.status == 499
            await eventually(place.idle)
            for engine in [place.engines[name] for name in legs]:
                await eventually(lambda engine=engine: engine.aborted == [engine.requests[0].id])
            assert set(failures(place).values()) == {0}

    async def test_while_it_waits_for_the_decode_engine(self, contract):
        async with pairs(contract, scripts={"d1": SLOW}) as place:
            ctx = RequestContext("r", endpoint="/t")
            running = asyncio.create_task(place.text(ctx))
            await eventually(lambda: place.engines["d1"].running == 1)
            ctx.cancel.cancel("client_disconnect")
            with pytest.raises(GatewayError):
                await running
            await eventually(place.idle)
            # A vLLM engine has ended, but keeps its cache until it is told that nobody will fetch it.
            for engine in [place.engines[name] for name in (("p1", "d1") if contract == "vllm" else ("d1",))]:
                await eventually(lambda engine=engine: engine.aborted == [engine.requests[0].id])
            assert set(failures(place).values()) == {0}

    async def test_in_the_middle_of_its_stream(self, contract):
        async with pairs(contract, scripts={"d1": Script(length=500, chunk_delay=0.01)}) as place:
            ctx = RequestContext("r", endpoint="/t")
            generation = place.generation(ctx, stream=True)
            await generation.start()
            await anext(generation)
            await generation.aclose("client_disconnect")
            await eventually(place.idle)
            await eventually(lambda: len(place.engines["d1"].aborted) == 1)
            assert set(failures(place).values()) == {0}

    async def test_a_deadline_stops_both(self, contract):
        async with pairs(contract, scripts={"p1": SLOW, "d1": SLOW}) as place:
            ctx = RequestContext("r", deadline=asyncio.get_running_loop().time() + 0.2)
            with pytest.raises(GatewayError) as caught:
                await place.text(ctx)
            assert caught.value.code == "deadline_exceeded"
            await eventually(place.idle)

    async def test_a_task_that_is_cancelled_leaves_nothing(self, contract):
        async with pairs(contract, scripts={"p1": SLOW, "d1": SLOW}) as place:
            running = asyncio.create_task(place.text())
            await eventually(lambda: place.engines["p1"].running == 1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await eventually(place.idle)
