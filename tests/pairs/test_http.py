"""Pairs of HTTP engines (SGLang): one request to both, one answer, and who is to blame (spec routing 5; case PD-01)."""

import asyncio
import contextlib
import json

import httpx
import pytest

from smg._native.region import FAILURES, PROCESSED
from smg.config.settings import DisaggregationSettings, RoutingSettings, Settings
from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine
from smg.engine_server.mock.http.pair import prompt_of
from smg.fleet.records import RankRecord
from tests.api.http_world import MODEL, place
from tests.api.serving import until

CHAT = "/v1/chat/completions"
TEXT = "the answer of the decode engine"
QUESTION = {"model": MODEL, "messages": [{"role": "user", "content": "hi there"}]}
DIALECTS = {
    "chat": (CHAT, QUESTION),
    "completions": ("/v1/completions", {"model": MODEL, "prompt": "hi there"}),
    "generate": ("/generate", {"text": "hi there"}),
}
ONCE = Settings(routing=RoutingSettings(disable_retries=True))
LEGS = {"p": "prefill", "d": "decode", "w": "regular"}


@contextlib.asynccontextmanager
async def pair(*names, settings=None, **scripts):
    """Engines called ``names`` (the first letter is the role), with the ``scripts`` of some; by name in ``by``."""
    names = names or ("p1", "d1")
    engines = [
        MockHttpEngine(
            HttpScript(**({"texts": (TEXT if name[0] != "p" else "never read",)} | scripts.get(name, {}))),
            server="sglang",
            role=LEGS[name[0]],
        )
        for name in names
    ]
    settings = settings or Settings(routing=RoutingSettings(retry_initial_backoff_ms=1))
    async with place(*engines, settings=settings) as at:
        at.by = dict(zip(names, engines, strict=True))
        yield at


async def post(at, path=CHAT, body=QUESTION, **more) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        return await client.post(at.url + path, content=json.dumps({**body, **more}).encode())


def slots(at, field) -> dict[str, int]:
    fleet = at.world.fleet
    return {name: fleet.region.worker_get(fleet.workers[f"h{n}"].slot, field) for n, name in enumerate(at.by)}


def idle(at) -> bool:
    return at.idle() and not any(engine.held for engine in at.engines)


def fault(**fields) -> dict:
    return {"faults": (HttpFault(**fields),)}


@pytest.mark.parametrize(("path", "body"), DIALECTS.values(), ids=DIALECTS)
class TestAnswers:
    async def test_a_buffered_answer_is_the_decode_engines_untouched(self, path, body):
        async with pair() as at:
            answer = await post(at, path, body)
            assert answer.status_code == 200
            assert TEXT in answer.text
            (prefill,), (decode,) = at.by["p1"].requests, at.by["d1"].requests
            assert prefill.json == decode.json
            added = {name: prefill.json[name] for name in prefill.json.keys() - body.keys()}
            room = added.pop("bootstrap_room")
            assert 0 < room < 2**63
            assert added == {"bootstrap_host": "127.0.0.1", "bootstrap_port": at.by["p1"].bootstrap_port}
            await until(lambda: idle(at))
            assert (prefill.state, decode.state) == ("done", "done")
            assert slots(at, PROCESSED) == {"p1": 1, "d1": 1}

    async def test_a_stream(self, path, body):
        async with pair(d1={"piece": 7, "delay": 0.001}) as at:
            answer = await post(at, path, body, stream=True)
            assert answer.status_code == 200
            last = answer.text.strip().rsplit("data: ", 1)[-1]
            assert last == "[DONE]" or json.loads(last)["text"] == TEXT
            await until(lambda: idle(at))
            assert slots(at, PROCESSED) == {"p1": 1, "d1": 1}


class TestRequests:
    async def test_what_the_client_wrote_stays_as_it_was(self):
        body = b'{"messages" : [{"role":"user","content":"\\u00fc"}], "top_p":1.00, "model":"mock-model"}'
        async with pair() as at, httpx.AsyncClient() as client:
            assert (await client.post(at.url + CHAT, content=body)).status_code == 200
            sent = at.by["d1"].requests[0].body
            assert sent.startswith(
                b'{"messages":[{"role":"user","content":"\\u00fc"}],"top_p":1.00,"model":"mock-model"'
            )

    @pytest.mark.parametrize(
        ("path", "body", "count"),
        [
            (CHAT, {**QUESTION, "n": 3}, 3),
            ("/v1/completions", {"model": MODEL, "prompt": ["a", "b"]}, 2),
            ("/generate", {"text": ["a", "b", "c"]}, 3),
            ("/generate", {"input_ids": [[1, 2], [3]]}, 2),
        ],
    )
    async def test_each_generation_of_a_batch_has_a_room(self, path, body, count):
        async with pair() as at:
            assert (await post(at, path, body)).status_code == 200
            sent = at.by["p1"].requests[0].json
            assert (len(sent["bootstrap_host"]), len(sent["bootstrap_port"])) == (count, count)
            assert len(set(sent["bootstrap_room"])) == count
            assert sent == at.by["d1"].requests[0].json

    async def test_a_single_prompt_of_ids_is_no_batch(self):
        async with pair() as at:
            assert (await post(at, "/generate", {"input_ids": [1, 2]})).status_code == 200
            assert isinstance(at.by["p1"].requests[0].json["bootstrap_room"], int)

    async def test_rooms_differ(self):
        async with pair() as at:
            assert {answer.status_code for answer in await asyncio.gather(*(post(at) for _ in range(8)))} == {200}
            rooms = {request.json["bootstrap_room"] for request in at.by["p1"].requests}
            assert len(rooms) == 8
            await until(lambda: idle(at))

    async def test_RO_05_each_leg_is_told_its_rank_and_the_decode_engine_both(self):
        async with pair() as at:
            fleet = at.world.fleet
            for number, (name, rank) in enumerate((("h0", 5), ("h1", 2))):
                fleet.workers[name].ranks.append(RankRecord(rank, 50 + number))
                fleet.region.worker_set(50 + number, 0, 2)
            assert (await post(at)).status_code == 200
            prefill, decode = at.by["p1"].requests[0].json, at.by["d1"].requests[0].json
            assert (prefill["routed_dp_rank"], "disagg_prefill_dp_rank" in prefill) == (5, False)
            assert (decode["routed_dp_rank"], decode["disagg_prefill_dp_rank"]) == (2, 5)

    async def test_engines_of_a_pair_alone_get_nothing(self):
        async with pair("p1") as at:
            answer = await post(at)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
            assert at.by["p1"].requests == []

    async def test_regular_engines_beside_a_pair_get_their_share_and_no_room(self):
        async with pair("p1", "d1", "w1") as at:
            for _ in range(40):
                assert TEXT in (await post(at)).text
            alone, together = len(at.by["w1"].requests), len(at.by["d1"].requests)
            assert alone + together == 40
            assert min(alone, together) > 0
            assert "bootstrap_room" not in at.by["w1"].requests[0].json


ROWS = ([-1.5, 7, None], [-2.5, 8, None])
SCORED = {"text": "hi there", "return_logprob": True}


class TestPromptLogprobs:
    async def test_they_are_the_prefill_engines_in_a_buffered_answer(self):
        async with pair(p1={"prompt_logprobs": ROWS}) as at:
            answer = await post(at, "/generate", SCORED)
            assert answer.json()["meta_info"]["input_token_logprobs"] == list(ROWS)
            assert answer.json()["text"] == TEXT
            assert answer.headers["content-length"] == str(len(answer.content))
            await until(lambda: idle(at))

    async def test_and_in_every_event_of_a_stream(self):
        async with pair(p1={"prompt_logprobs": ROWS}, d1={"piece": 5}) as at:
            answer = await post(at, "/generate", SCORED, stream=True)
            events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
            assert events[-1]["text"] == TEXT
            assert {json.dumps(event["meta_info"]["input_token_logprobs"]) for event in events} == {json.dumps(ROWS)}

    async def test_the_decode_engines_own_come_behind(self):
        async with pair(p1={"prompt_logprobs": ROWS[:1]}, d1={"prompt_logprobs": ROWS[1:]}) as at:
            assert (await post(at, "/generate", SCORED)).json()["meta_info"]["input_token_logprobs"] == list(ROWS)

    async def test_without_them_an_answer_is_not_touched(self):
        async with pair(p1={"prompt_logprobs": ROWS}) as at:
            assert "input_token_logprobs" not in (await post(at, "/generate", {"text": "hi"})).json()["meta_info"]


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["buffered", "stream"])


class TestFailures:
    @STREAMS
    @pytest.mark.parametrize("kind", [{"kind": "reset"}, {"kind": "status", "status": 500}], ids=["dies", "fails"])
    @pytest.mark.parametrize("leg", ["p1", "d1"])
    async def test_another_one_is_tried_and_only_the_failed_one_is_blamed(self, leg, kind, stream):
        other = leg[0] + "2"
        async with pair("p1", "d1", other, **{leg: fault(**kind)}) as at:
            for _ in range(4):
                answer = await post(at, stream=stream)
                assert answer.status_code == 200
                assert answer.text.rstrip().endswith("[DONE]") if stream else TEXT in answer.text
            failed = slots(at, FAILURES)
            assert failed.pop(leg) > 0
            assert set(failed.values()) == {0}
            await until(lambda: idle(at))
            assert at.world.metric("pd_leg_failures_total") == slots(at, FAILURES)[leg]

    async def test_a_killed_prefill_engine_is_blamed_although_its_partner_complains_as_well(self):
        async with pair("p1", "p2", "d1", p1={"delay": 5.0}) as at:
            running = [asyncio.create_task(post(at)) for _ in range(4)]
            await until(lambda: at.by["p1"].running > 0)
            await at.by["p1"].kill()
            assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}
            failed = slots(at, FAILURES)
            assert failed["p1"] > 0
            assert (failed["p2"], failed["d1"]) == (0, 0)
            await until(lambda: idle(at))

    async def test_one_that_takes_too_long_gives_way_to_another(self):
        settings = Settings(
            routing=RoutingSettings(retry_initial_backoff_ms=1),
            disaggregation=DisaggregationSettings(prefill_timeout_secs=0.3),
        )
        async with pair("p1", "p2", "d1", p1=fault(kind="stall"), settings=settings) as at:
            assert {(await post(at)).status_code for _ in range(2)} == {200}
            failed = slots(at, FAILURES)
            assert failed["p1"] > 0
            assert (failed["p2"], failed["d1"]) == (0, 0)
            await until(lambda: idle(at))

    @STREAMS
    @pytest.mark.parametrize("leg", ["p1", "d1"])
    async def test_RL_01_a_refusal_of_either_is_the_answer_and_nobody_is_blamed(self, leg, stream):
        async with pair("p1", "d1", "p2", "d2", **{leg: fault(status=400, message="prompt is too long")}) as at:
            answers = [await post(at, stream=stream) for _ in range(2)]
            refused = [answer for answer in answers if answer.status_code == 400]
            assert [answer.json()["error"]["message"] for answer in refused] == ["prompt is too long"]
            assert set(slots(at, FAILURES).values()) == {0}
            await until(lambda: idle(at))

    async def test_the_only_prefill_engine_fails_and_the_client_gets_its_error(self):
        async with pair(settings=ONCE, p1=fault(status=500, message="CUDA error in /opt/engine.py")) as at:
            answer = await post(at)
            assert answer.status_code == 500
            assert "CUDA" not in answer.text
            await until(lambda: idle(at))
            assert slots(at, FAILURES) == {"p1": 1, "d1": 0}

    async def test_RL_03_once_the_answer_has_begun_a_broken_stream_is_told_and_not_tried_again(self):
        async with pair("p1", "d1", d1={**fault(kind="reset", after=3), "delay": 0.01}) as at:
            answer = await post(at, stream=True)
            assert answer.status_code == 200
            assert "worker_stream_failed" in answer.text
            assert not answer.text.rstrip().endswith("[DONE]")
            assert len(at.by["d1"].requests) == 1
            await until(lambda: idle(at))
            assert slots(at, FAILURES) == {"p1": 0, "d1": 1}

    async def test_a_prefill_engine_that_fails_after_the_answer_has_begun_costs_only_itself(self):
        async with pair(p1={"piece": 1}, d1={"delay": 0.02}) as at:
            # Its answer breaks off after the other engine has been handed the prompt.
            at.by["p1"]._hand_over = _handing_over_and_dying(at.by["p1"])
            answer = await post(at, stream=True)
            assert answer.text.rstrip().endswith("[DONE]")
            await until(lambda: idle(at))
            assert slots(at, FAILURES) == {"p1": 1, "d1": 0}

    async def test_RL_04_a_client_that_leaves_ends_both(self):
        async with pair(p1={"delay": 5.0}) as at:
            with pytest.raises(httpx.ReadTimeout):
                async with httpx.AsyncClient(timeout=0.3) as client:
                    await client.post(at.url + CHAT, json=QUESTION)
            await until(lambda: idle(at))
            assert [engine.requests[0].state for engine in at.engines] == ["cancelled", "cancelled"]
            assert set(slots(at, FAILURES).values()) == {0}

    async def test_RL_04_in_the_middle_of_a_stream(self):
        async with pair(d1={"delay": 0.05}) as at:
            async with (
                httpx.AsyncClient() as client,
                client.stream("POST", at.url + CHAT, json={**QUESTION, "stream": True}) as answer,
            ):
                await anext(answer.aiter_bytes())
            await until(lambda: idle(at))
            assert at.by["d1"].requests[0].state == "cancelled"
            assert set(slots(at, FAILURES).values()) == {0}


def _handing_over_and_dying(engine: MockHttpEngine):
    """In place of the engine's own: hands the prompt over, and cuts the connection in the middle of its answer."""

    async def hand_over(script, rooms, answer, body, writer):
        for meeting in rooms:
            await engine._transfers.offer(meeting.key, prompt_of(body)).wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\n\r\ndata: {}\n\n")
        await writer.drain()
        await asyncio.sleep(0.1)
        raise ConnectionError

    return hand_over
