"""Requests that HTTP engines answer in the client's own dialect: untouched, accounted for, and never orphaned."""

import asyncio
import json
from collections import Counter

import httpx
import pytest

from smg.config.settings import AdmissionSettings, RoutingSettings, ServerSettings, Settings
from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine
from smg.fleet.records import WILDCARD, RankRecord
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.round_robin import RoundRobin
from smg.routing.policies.table import POLICIES
from tests.api.http_world import MODEL, place
from tests.api.serving import send, until
from tests.pipeline.fakes import SETTINGS, end, limited, text
from tests.routing.fleets import PROCESS
from tests.tenants import PER_MINUTE, limit, used

CHAT = "/v1/chat/completions"
QUESTION = {"model": MODEL, "messages": [{"role": "user", "content": "hi there"}]}
# Every dialect that has a route on HTTP engines: path, body, and what a client reads the text from.
DIALECTS = {
    "chat": (CHAT, QUESTION),
    "completions": ("/v1/completions", {"model": MODEL, "prompt": "hi there"}),
    "generate": ("/generate", {"text": "hi there"}),
    "responses": ("/v1/responses", {"model": MODEL, "input": "hi there"}),
    "messages": ("/v1/messages", {**QUESTION, "max_tokens": 9}),
}


def engine(server="sglang", **script) -> MockHttpEngine:
    spoken = {"texts": ("one two three",), "messages": True, "responses": True}
    return MockHttpEngine(HttpScript(**(spoken | script)), server=server)


async def post(url: str, path: str, body, headers=None) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as client:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await client.post(url + path, content=data, headers=headers)


async def straight(at, path: str, body: dict) -> httpx.Response:
    """What the engine itself answers."""
    return await post(at.engines[0].url, path, body)


@pytest.mark.parametrize(("path", "body"), DIALECTS.values(), ids=DIALECTS)
class TestUntouched:
    async def test_a_buffered_answer(self, path, body):
        async with place(engine()) as at:
            mine, its = await post(at.url, path, body), await straight(at, path, body)
            assert (mine.status_code, mine.content) == (200, its.content)
            assert mine.headers["content-type"] == "application/json"
            assert mine.headers["content-length"] == str(len(its.content))
            assert at.idle()

    @pytest.mark.parametrize("script", [{}, {"piece": 1}, {"piece": 7, "framing": "eof"}, {"ends": "\r\n"}])
    async def test_a_stream_however_it_comes(self, path, body, script):
        async with place(engine(**script)) as at:
            body = {**body, "stream": True, "stream_options": {"include_usage": True}}
            mine, its = await post(at.url, path, body), await straight(at, path, body)
            assert (mine.status_code, mine.content) == (200, its.content)
            assert mine.headers["content-type"] == "text/event-stream; charset=utf-8"
            await until(at.idle)

    async def test_LM_03_tokens_are_counted(self, path, body):
        for stream in (False, True):
            async with place(engine(piece=3, cached_tokens=1)) as at:
                answer = await post(at.url, path, {**body, "stream": stream})
                assert b'"choices":[]' not in answer.content
                await until(at.idle)
                # Two of the prompt, one of them cached, three of the answer.
                assert at.world.metric("router_tokens_total") == 2 + 1 + 3


class TestWhatTheEngineGets:
    async def test_the_body_as_the_client_wrote_it(self):
        messages = b'"messages" : [{"role":"user","content":"\\u00fc \xc3\xbc"}]'
        body = b"{ " + messages + b', "top_p":1.00, "x_own": [1e3 ], "model":"mock-model" }'
        async with place(engine()) as at:
            assert (await post(at.url, CHAT, body)).status_code == 200
            assert at.engines[0].requests[0].body == body

    async def test_an_alias_is_the_only_thing_that_changes(self):
        body = b'{"model": "nick", "messages" : [{"role":"user","content":"\\u00fc"}], "top_p":1.00}'
        async with place(engine(), aliases=["nick"]) as at:
            assert (await post(at.url, CHAT, body)).status_code == 200
            sent = at.engines[0].requests[0].body
            assert sent == b'{"model":"mock-model","messages":[{"role":"user","content":"\\u00fc"}],"top_p":1.00}'

    async def test_headers_are_those_that_mean_something_there(self):
        sent = {
            "authorization": "Bearer of-the-gateway",
            "x-api-key": "of-the-gateway",
            "cookie": "c",
            "x-request-id": "mine-1",
            "x-correlation-id": "c-1",
            "x-request-id-part": "p",
            "x-smg-routing-key": "k",
        }
        async with place(engine(key="engine-key")) as at:
            answer = await post(at.url, CHAT, QUESTION, sent)
            assert (answer.status_code, answer.headers["x-request-id"]) == (200, "mine-1")
            seen = at.engines[0].requests[0]
            assert seen.header("authorization") == ["Bearer engine-key"]
            assert seen.header("x-request-id") == ["mine-1"]
            assert [seen.header(f"x-{name}") for name in ("correlation-id", "request-id-part", "smg-routing-key")] == [
                ["c-1"],
                ["p"],
                ["k"],
            ]
            assert seen.header("cookie") == seen.header("x-api-key") == []

    async def test_fields_only_the_engine_knows_are_not_refused(self):
        async with place(engine()) as at:
            answer = await post(at.url, CHAT, {**QUESTION, "modalities": ["audio"], "return_hidden_states": True})
            assert answer.status_code == 200

    async def test_usage_that_the_client_wants_is_not_hidden(self):
        async with place(engine()) as at:
            asked = {**QUESTION, "stream": True, "stream_options": {"include_usage": True}}
            assert b'"choices":[]' in (await post(at.url, CHAT, asked)).content
            assert at.engines[0].requests[0].json == asked
            options = {"continuous_usage_stats": False}
            await post(at.url, CHAT, {**asked, "stream_options": options})
            assert at.engines[0].requests[1].json["stream_options"] == {**options, "include_usage": True}


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_RL_01_the_engines_own_words_for_the_clients_mistake(self, stream):
        async with place(engine(faults=(HttpFault(status=400, message="prompt is too long"),)), engine()) as at:
            answers = [await post(at.url, CHAT, {**QUESTION, "stream": stream}) for _ in range(2)]
            refused = next(answer for answer in answers if answer.status_code == 400)
            assert refused.json()["error"]["message"] == "prompt is too long"
            assert refused.headers["content-type"] == "application/json"
            assert [len(each.requests) for each in at.engines] == [1, 1]
            assert at.world.metric("worker_retries") == 0
            await until(at.idle)

    async def test_a_body_that_is_no_json_is_told_by_the_dialect(self):
        async with place(engine()) as at:
            answer = await post(at.url, CHAT, b"{")
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "json_parse_error")

    async def test_RO_01_unknown_model(self):
        async with place(engine()) as at:
            answer = await post(at.url, CHAT, {**QUESTION, "model": "nope"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(("kind", "after"), [("reset", None), ("reset", 0), ("status", None)])
    async def test_RL_03_what_fails_before_the_first_byte_is_tried_elsewhere(self, stream, kind, after):
        fault = HttpFault(kind=kind, status=500, after=after)
        async with place(
            engine(faults=(fault,)), engine(faults=(HttpFault(kind=kind, after=after, first=1),)), engine()
        ) as at:
            for _ in range(3):
                answer = await post(at.url, CHAT, {**QUESTION, "stream": stream})
                assert answer.status_code == 200
                assert b"three" in answer.content
            await until(at.idle)

    async def test_RL_02_a_busy_engine_is_not_blamed_and_the_next_one_asked(self):
        busy = engine(faults=(HttpFault(status=429, retry_after="9"), HttpFault(status=503)))
        async with place(busy, engine()) as at:
            for _ in range(4):
                assert (await post(at.url, CHAT, QUESTION)).status_code == 200
            assert at.world.fleet.region.worker_get(at.world.fleet.workers["h0"].slot, 7) == 0
            await until(at.idle)

    async def test_RL_02_when_all_are_busy_the_client_hears_when_to_come_again(self):
        once = Settings(routing=RoutingSettings(disable_retries=True))
        async with place(engine(faults=(HttpFault(status=429, retry_after="9"),)), settings=once) as at:
            answer = await post(at.url, CHAT, QUESTION)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "9")
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"

    async def test_err_mapping_nobody_there(self):
        once = Settings(routing=RoutingSettings(disable_retries=True))
        async with place(engine(), settings=once) as at:
            await at.engines[0].stop()
            answer = await post(at.url, CHAT, QUESTION)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_failed")
            assert "127.0.0.1" not in answer.text
            assert at.world.idle()

    async def test_MS_10_a_stream_that_breaks_later_ends_in_an_error_event(self):
        async with place(engine(faults=(HttpFault(kind="reset", after=2),)), engine()) as at:
            streams = [(await post(at.url, CHAT, {**QUESTION, "stream": True})).text for _ in range(2)]
            broken = next(body for body in streams if "[DONE]" not in body)
            *_, last = broken.strip().split("\n\n")
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "worker_stream_failed"
            assert [len(each.requests) for each in at.engines] == [1, 1]
            await until(at.idle)

    @pytest.mark.parametrize("strange", [False, True], ids=["known", "only the engine knows"])
    @pytest.mark.parametrize(("path", "body"), DIALECTS.values(), ids=DIALECTS)
    async def test_MS_10_the_last_word_has_the_dialects_form(self, path, body, strange):
        asked = {**body, "stream": True, **({"max_tokens": "many", "max_output_tokens": "many"} if strange else {})}
        if strange and path == "/generate":
            asked["sampling_params"] = "mild"
        async with place(engine(faults=(HttpFault(kind="reset", after=2),))) as at:
            answer = await post(at.url, path, asked)
            assert answer.status_code == 200
            *_, last = answer.text.strip().split("\n\n")
            *names, data = last.split("\n")
            told = json.loads(data.removeprefix("data: "))
            # What the type says is also the event's name, for the clients that read those.
            assert names == ([f"event: {told['type']}"] if path in ("/v1/responses", "/v1/messages") else [])
            match path:
                case "/v1/messages":
                    assert told["type"] == "error"
                    assert told["error"]["type"] == "api_error"
                case "/v1/responses":
                    assert (told["type"], told["code"]) == ("error", "worker_stream_failed")
                case _:
                    assert told["error"]["code"] == "worker_stream_failed"

    async def test_the_error_event_never_lands_inside_an_event(self):
        whole = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[{"del'
        async with place(engine(raw=whole, faults=(HttpFault(kind="reset", after=1),))) as at:
            body = (await post(at.url, CHAT, {**QUESTION, "stream": True})).text
            events = [json.loads(part.removeprefix("data: ")) for part in body.strip().split("\n\n")]
            assert [list(event) for event in events] == [["choices"], ["error"]]

    async def test_a_buffered_answer_that_breaks_off_is_not_taken_for_whole(self):
        async with place(engine(), settings=SETTINGS) as at:
            at.engines[0].script = HttpScript(texts=("x" * 500_000,), faults=())
            at.engines[0]._answer = _cut  # type: ignore[method-assign]
            with pytest.raises(httpx.RemoteProtocolError):
                await post(at.url, *DIALECTS["completions"])
            # One of chat is held until it is whole, so there is still time for an error.
            answer = await post(at.url, CHAT, QUESTION)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_stream_failed")
            await until(at.world.idle)


async def _cut(writer, body, status, kind, more=None) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body[: len(body) // 2])
    await writer.drain()
    await asyncio.sleep(0.05)
    raise ConnectionResetError


class TestClientsThatLeave:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_RL_04_the_engine_hears_of_it_at_once(self, stream):
        async with place(engine(texts=("word " * 400,), delay=0.02 if stream else 30)) as at:
            _, writer = await send(at.url, {**QUESTION, "stream": stream})
            await until(lambda: at.engines[0].running == 1)
            await asyncio.sleep(0.1)
            writer.close()
            await until(lambda: at.engines[0].requests[0].state == "cancelled", 1.0)
            await until(at.idle)
            assert at.world.metric("engine_aborts_total") == (1 if stream else 0)

    async def test_sse_backpressure_a_client_that_does_not_read_holds_up_only_its_own_stream(self):
        async with place(engine(texts=(("y" * 20_000 + " ") * 1000,))) as at:
            reader, writer = await send(at.url, {**QUESTION, "stream": True})
            await until(lambda: at.engines[0].running == 1)
            await asyncio.sleep(0.3)
            # 20 MB are on their way, and the engine is still at it: nobody has read them.
            assert at.engines[0].running == 1
            at.engines[0].script = HttpScript(texts=("ok",))
            assert (await post(at.url, CHAT, QUESTION)).status_code == 200
            assert at.engines[0].running == 1
            tail, size = b"", 0
            while b"[DONE]" not in tail:
                data = await reader.read(1 << 16)
                tail, size = (tail + data)[-100:], size + len(data)
            assert size > 20_000_000
            writer.close()
            await until(at.idle)

    async def test_the_deadline_ends_a_silent_stream(self):
        settings = Settings(routing=SETTINGS.routing, server=ServerSettings(request_timeout_secs=0.3))
        async with place(engine(faults=(HttpFault(kind="stall", after=2),)), settings=settings) as at:
            body = (await post(at.url, CHAT, {**QUESTION, "stream": True})).text
            assert '"deadline_exceeded"' in body
            await until(lambda: at.engines[0].requests[0].state == "cancelled")
            await until(at.idle)

    async def test_RL_06_silence_is_kept_alive_between_events(self):
        settings = Settings(routing=SETTINGS.routing, server=ServerSettings(sse_keepalive_secs=0.05))
        async with place(engine(delay=0.2), settings=settings) as at:
            answer = await post(at.url, CHAT, {**QUESTION, "stream": True})
            parts = answer.text.strip().split("\n\n")
            assert any(part.startswith(":") for part in parts)
            assert all(part.startswith((":", "data: {", "data: [DONE]")) for part in parts)


class TestRouting:
    async def test_prefix_hash_http_text_decides(self):
        await self._sticks("prefix_hash")

    async def test_cache_aware_over_text(self):
        await self._sticks("cache_aware")

    async def _sticks(self, policy: str) -> None:
        """Conversations that begin alike go to one engine, also when they have grown."""
        async with place(*[engine() for _ in range(4)]) as at:
            region = at.world.fleet.region
            at.world.services.router._policy = POLICIES[policy](Parts(RoutingSettings(), region))
            for topic in ("sea", "moon", "bread"):
                turns = [{"role": "system", "content": f"You know all about the {topic}. " * 40}]
                before = [len(each.requests) for each in at.engines]
                for number in range(4):
                    turns.append({"role": "user", "content": f"question {number}"})
                    assert (await post(at.url, CHAT, {"model": MODEL, "messages": turns})).status_code == 200
                grown = [len(each.requests) - old for each, old in zip(at.engines, before, strict=True)]
                assert sorted(grown) == [0, 0, 0, 4]

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    async def test_load_guard_everywhere_counts_hold_while_it_runs_and_return(self, policy):
        async with place(engine(delay=0.05), engine(delay=0.05)) as at:
            region = at.world.fleet.region
            at.world.services.router._policy = POLICIES[policy](Parts(RoutingSettings(), region))
            body = {**QUESTION, "stream": True}
            running = [asyncio.create_task(post(at.url, CHAT, body)) for _ in range(4)]
            await until(lambda: sum(count for count, _ in at.world.fleet.inflight().values()) == 4)
            assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}
            await until(at.idle)

    async def test_engines_of_both_kinds_share_one_model(self):
        async with place(engine(), tokens={"g0": [[[text("ids"), end()]]]}) as at:
            at.world.fleet.workers["g0"].features = frozenset({"generate"})
            found = {(await post(at.url, CHAT, QUESTION)).json()["choices"][0]["message"]["content"] for _ in range(20)}
            assert found == {"one two three", "ids"}
            at.world.fleet.set_only("g0")
            body = (await post(at.url, CHAT, QUESTION)).json()
            assert body["choices"][0]["message"]["content"] == "ids"

    @pytest.mark.parametrize("stream", [False, True])
    async def test_its_tenant_is_charged_what_the_engine_has_counted(self, stream):
        async with place(engine()) as at:
            limit(at.world.services)
            answer = await post(at.url, CHAT, {**QUESTION, "stream": stream, "stream_options": {"include_usage": True}})
            usage = answer.text.split('"total_tokens":')[-1]
            assert used(at.world.services, "ip:127.0.0.1") == (1, int(usage.split("}")[0].split(",")[0]))

    async def test_a_tenant_over_its_limit_reaches_no_engine(self):
        async with place(engine()) as at:
            limit(at.world.services)
            statuses = [(await post(at.url, CHAT, QUESTION)).status_code for _ in range(PER_MINUTE)]
            assert 0 < statuses.index(429) < PER_MINUTE - 1
            assert len(at.engines[0].requests) == statuses.count(200)
            assert at.idle()

    async def test_a_rule_for_a_model_holds_by_whichever_name_it_is_called(self):
        rule = AdmissionSettings(tenant_model_limit=(f"ip:127.0.0.1@{MODEL}=1/0",))
        async with place(engine(), aliases=["nick"], settings=Settings(admission=rule)) as at:
            assert (await post(at.url, CHAT, {**QUESTION, "model": "nick"})).status_code == 200
            refused = await post(at.url, CHAT, {**QUESTION, "model": MODEL})
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "tenant_rate_limit_exceeded")

    async def test_a_rule_for_a_model_holds_where_a_worker_serves_whatever_it_is_asked_for(self):
        rule = AdmissionSettings(tenant_model_limit=("ip:127.0.0.1@big=1/0",))
        async with place(engine(), model=WILDCARD, settings=Settings(admission=rule)) as at:
            asked = [
                (await post(at.url, CHAT, {**QUESTION, "model": name})).status_code for name in ("big", "big", "b")
            ]
            assert asked == [200, 429, 200]

    async def test_admission_counts_it(self):
        async with place(engine(delay=2.0), settings=limited(1)) as at:
            first = asyncio.create_task(post(at.url, CHAT, QUESTION))
            await until(lambda: at.engines[0].running == 1)
            assert (await post(at.url, CHAT, QUESTION)).status_code == 429
            assert (await first).status_code == 200


class TestTokenizing:
    async def test_engines_that_tokenize_are_asked(self):
        async with place(engine("vllm")) as at:
            answer = await post(at.url, "/v1/tokenize", {"model": MODEL, "prompt": "a b c"})
            assert answer.json() == {"count": 3, "max_model_len": 4096, "tokens": [0, 1, 2]}
            answer = await post(at.url, "/v1/detokenize", {"model": MODEL, "tokens": [1, 2]})
            assert answer.json() == {"prompt": "t1 t2"}
            assert at.idle()

    async def test_where_the_gateway_has_a_tokenizer_it_answers_itself(self):
        async with place(engine("vllm"), tokens={"g0": [[[text("ids"), end()]]]}) as at:
            at.world.fleet.workers["g0"].features = frozenset({"generate"})
            for _ in range(8):
                answer = await post(at.url, "/v1/tokenize", {"model": MODEL, "prompt": "a b c"})
                assert "char_count" in answer.json()

    async def test_readiness_needs_no_tokenizer(self):
        async with place(engine()) as at:
            at.world.texts.loaded = False
            async with httpx.AsyncClient() as client:
                assert (await client.get(at.url + "/readiness")).status_code == 200


class TestRanks:
    """Data-parallel ranks of HTTP engines (field case RO-05; spec routing 4.6)."""

    async def test_RO_05_each_global_rank_gets_its_share_and_each_engine_only_its_own(self):
        async with place(engine(), engine()) as at:
            region = at.world.fleet.region
            for number in range(8):
                worker = at.world.fleet.workers[f"h{number // 4}"]
                worker.ranks.append(RankRecord(number, 40 + number))
                region.worker_set(40 + number, 0, 2)
            at.world.services.router = FleetRouter(at.world.fleet, region, PROCESS, RoundRobin(region))
            gate = asyncio.Semaphore(16)

            async def one() -> int:
                async with gate:
                    return (await post(at.url, CHAT, QUESTION)).status_code

            assert set(await asyncio.gather(*(one() for _ in range(160)))) == {200}
            seen = [[request.json["data_parallel_rank"] for request in engine.requests] for engine in at.engines]
            assert (set(seen[0]), set(seen[1])) == ({0, 1, 2, 3}, {4, 5, 6, 7})
            counts = Counter(seen[0] + seen[1])
            assert set(counts.values()) == {20}
            for request in (*at.engines[0].requests, *at.engines[1].requests):
                assert request.header("x-data-parallel-rank") == [str(request.json["data_parallel_rank"])]
                assert "@" not in request.header("host")[0]
            assert all(region.inflight(40 + number) == (0, 0) for number in range(8))

    async def test_without_ranks_nothing_is_put_into_a_request(self):
        async with place(engine()) as at:
            await post(at.url, CHAT, QUESTION)
            assert at.engines[0].requests[0].json == QUESTION
            assert at.engines[0].requests[0].header("x-data-parallel-rank") == []
