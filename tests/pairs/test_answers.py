"""Generations on a prefill and a decode engine of every contract that has them (spec engine-contract 5; routing 5)."""

import asyncio
import json

import pytest

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import Logprobs
from smg.engine_server.mock import Script
from tests.pairs.pools import PAIRED, TEXT, eventually, pairs

MEETING = ("sglang", "tokenspeed")
# The field by which an engine knows that it is one of a pair.
TOLD = {"sglang": "disaggregated_params", "tokenspeed": "kv_bootstrap_info", "vllm": "kv_transfer_params_json"}


@pytest.mark.parametrize("contract", PAIRED)
class TestEveryContract:
    async def test_the_text_is_the_decode_engines_and_both_have_worked(self, contract):
        async with pairs(contract, scripts={"p1": Script.text("never read")}) as place:
            ctx = RequestContext("r", endpoint="/t")
            assert await place.text(ctx) == TEXT
            (prefill,), (decode,) = place.engines["p1"].requests, place.engines["d1"].requests
            assert list(prefill.ask.prompt) == list(decode.ask.prompt)
            assert prefill.id == decode.id
            assert (ctx.notes["worker"], ctx.notes["prefill"]) == ("d1", "p1")
            await eventually(place.idle)
            assert [entry.state for entry in (prefill, decode)] == ["done", "done"]
            assert place.engines["p1"].aborted == place.engines["d1"].aborted == []

    async def test_a_stream_is_the_same(self, contract):
        async with pairs(contract) as place:
            assert await place.stream() == (TEXT, None)
            await eventually(place.idle)

    async def test_many_at_once_over_two_pairs_never_mix_their_prompts(self, contract):
        async with pairs(contract, "p1", "p2", "d1", "d2", scripts={}) as place:
            texts = await asyncio.gather(*(place.text(RequestContext(f"r{number}")) for number in range(24)))
            assert set(texts) == {TEXT}
            assert {name: len(engine.requests) for name, engine in place.engines.items()} == dict.fromkeys(
                ("p1", "p2", "d1", "d2"), 12
            )
            await eventually(place.idle)

    async def test_cached_tokens_are_the_better_of_both_counts(self, contract):
        async with pairs(contract, scripts={"p1": Script.text("x", cached_tokens=7)}) as place:
            usage = (await place.answer()).usage
            # A relayed prompt has been computed and is over before the answer begins; what it says is for its engine.
            assert usage.cached_tokens == (7 if contract in MEETING else 0)

    async def test_a_regular_engine_beside_the_pair_gets_its_share(self, contract):
        async with pairs(contract, "p1", "d1", "w1") as place:
            for number in range(40):
                assert await place.text(RequestContext(f"r{number}")) == TEXT
            alone, pair = len(place.engines["w1"].requests), len(place.engines["d1"].requests)
            assert alone + pair == 40
            assert min(alone, pair) > 0
            assert not place.engines["w1"].requests[0].request.HasField(TOLD[contract])

    async def test_metrics_tell_of_both_legs(self, contract):
        async with pairs(contract) as place:
            await place.text()
            await eventually(place.idle)
            assert place.metric("smg_worker_selection_total\0p1") == place.metric("smg_worker_selection_total\0d1") == 1
            assert place.metric("smg_pd_prefill_duration_seconds_bucket") == 1
            assert place.metric("smg_pd_ttft_seconds_bucket") == 1
            assert place.metric("smg_pd_leg_failures_total") == place.metric("smg_pd_fallback_total") == 0


@pytest.mark.parametrize("contract", MEETING)
class TestMeeting:
    async def test_both_are_told_the_same_room_and_rooms_differ(self, contract):
        async with pairs(contract) as place:
            await asyncio.gather(*(place.text(RequestContext(f"r{number}")) for number in range(8)))
            told = {
                name: {entry.id: _room(contract, entry.request) for entry in place.engines[name].requests}
                for name in ("p1", "d1")
            }
            assert told["p1"] == told["d1"]
            rooms = [room for _, _, room in told["p1"].values()]
            assert len(set(rooms)) == 8
            assert all(0 < room < 2 ** (31 if contract == "sglang" else 63) for room in rooms)
            assert {(host, port) for host, port, _ in told["p1"].values()} == {
                ("127.0.0.1", place.engines["p1"].bootstrap_port)
            }

    async def test_both_work_at_the_same_time(self, contract):
        async with pairs(contract, scripts={"p1": Script.text("x", first_delay=0.3)}) as place:
            running = asyncio.create_task(place.text())
            await eventually(lambda: place.engines["p1"].running == place.engines["d1"].running == 1)
            assert place.fleet.inflight()["p1"][0] == place.fleet.inflight()["d1"][0] == 1
            assert await running == TEXT


async def test_prompt_log_probabilities_are_the_prefill_engines():
    async with pairs("sglang") as place:
        done = await place.answer(logprobs=Logprobs(top=0, prompt=True))
        rows = done.choices[0].prompt_logprobs
        prompt = place.engines["p1"].requests[0].ask.prompt
        assert [row.token for row in rows] == list(prompt)
        assert done.choices[0].text == TEXT
        await eventually(place.idle)


class TestRelay:
    async def test_the_prefill_engine_makes_one_token_whatever_the_client_wants(self):
        async with pairs("vllm") as place:
            assert await place.text(logprobs=Logprobs(top=2)) == TEXT
            request = place.engines["p1"].requests[0].request
            params = request.sampling_params
            assert (params.max_tokens, params.n, params.min_tokens, params.ignore_eos) == (1, 1, 0, True)
            assert (request.stream, params.HasField("logprobs"), list(params.stop_token_ids)) == (False, False, [])
            assert json.loads(request.kv_transfer_params_json) == {"do_remote_decode": True, "do_remote_prefill": False}
            assert place.engines["d1"].requests[0].request.sampling_params.logprobs == 2

    async def test_nixl_what_the_prefill_engine_returned_is_relayed_byte_for_byte(self):
        async with pairs("vllm") as place:
            await place.text()
            relayed = place.engines["d1"].requests[0].request.kv_transfer_params_json
            assert relayed.startswith('{"remote_block_ids" :[ 3,1, 2],  "do_remote_prefill": true,')
            assert f'"remote_port":{place.engines["p1"].bootstrap_port}' in relayed

    async def test_mooncake_both_are_told_one_transfer(self):
        async with pairs("vllm", connector="MooncakeConnector") as place:
            assert await place.text() == TEXT
            asked = json.loads(place.engines["p1"].requests[0].request.kv_transfer_params_json)
            told = json.loads(place.engines["d1"].requests[0].request.kv_transfer_params_json)
            transfer = asked.pop("transfer_id")
            assert transfer.startswith("xfer-")
            assert asked == {"do_remote_decode": True, "do_remote_prefill": False}
            assert told == {
                "do_remote_decode": False,
                "do_remote_prefill": True,
                "transfer_id": transfer,
                "remote_engine_id": place.engines["p1"].engine_id,
                "remote_bootstrap_addr": f"http://127.0.0.1:{place.engines['p1'].bootstrap_port}",
            }
            await eventually(place.idle)

    async def test_several_choices_are_computed_by_the_decode_engine_alone(self):
        async with pairs("vllm") as place:
            done = await place.answer(n=2)
            assert [choice.text for choice in done.choices] == [TEXT, TEXT]
            assert place.engines["p1"].requests == []
            assert not place.engines["d1"].requests[0].request.HasField("kv_transfer_params_json")
            assert place.metric("smg_pd_fallback_total\0m\0n") == 1
            await eventually(place.idle)

    async def test_prompt_log_probabilities_come_from_who_computes_the_prompt(self):
        async with pairs("vllm") as place:
            done = await place.answer(logprobs=Logprobs(prompt=True))
            assert len(done.choices[0].prompt_logprobs) == len(place.engines["d1"].requests[0].ask.prompt)
            assert place.engines["p1"].requests == []
            assert place.metric("smg_pd_fallback_total\0m\0prompt_logprobs") == 1

    async def test_an_engine_that_returns_nothing_leaves_the_prompt_to_the_other(self):
        async with pairs("vllm", connector="OffloadingConnector") as place:
            assert await place.text() == TEXT
            assert not place.engines["d1"].requests[0].request.HasField("kv_transfer_params_json")
            assert place.metric("smg_pd_fallback_total\0m\0no_params") == 1

    async def test_the_decode_engine_hears_nothing_before_the_prompt_is_computed(self):
        async with pairs("vllm", scripts={"p1": Script.text("x", first_delay=0.2)}) as place:
            running = asyncio.create_task(place.text())
            await eventually(lambda: place.engines["p1"].running == 1)
            assert place.engines["d1"].requests == []
            assert await running == TEXT


async def test_without_a_decode_engine_nothing_is_asked():
    async with pairs("sglang", "p1") as place:
        with pytest.raises(GatewayError) as caught:
            await place.text()
        assert (caught.value.status, caught.value.code) == (503, "no_available_workers")
        assert "no decode engine" in caught.value.message
        assert place.engines["p1"].requests == []
        assert place.idle()


def _room(contract, request):
    told = request.disaggregated_params if contract == "sglang" else request.kv_bootstrap_info
    return told.bootstrap_host, told.bootstrap_port, told.bootstrap_room
