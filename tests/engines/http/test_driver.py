"""The driver of HTTP engines: what is sent, what comes back, and what an engine tells of itself."""

import asyncio
import contextlib

import pytest

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine
from smg.engines.http.driver import HttpDriver
from tests.engines.http.peers import Peer, peer

BODY = b'{"model":"mock-model","messages":[{"role":"user","content":"hi"}]}'
CHAT = "/v1/chat/completions"


@contextlib.asynccontextmanager
async def driver_to(url: str, **options):
    driver = HttpDriver(url, **options)
    try:
        yield driver
    finally:
        await driver.close()


async def forward(driver: HttpDriver, headers=None, body=BODY):
    return await driver.forward(RequestContext("req-1"), "POST", CHAT, headers or {}, body)


async def whole(answer) -> bytes:
    parts = []
    while data := await answer.body.read():
        parts.append(data)
    return b"".join(parts)


class TestForward:
    async def test_body_and_headers_go_as_they_are_with_the_engines_own_key(self):
        async with MockHttpEngine(HttpScript(key="k")) as engine, driver_to(engine.url, key="k") as driver:
            answer = await forward(driver, {"x-request-id": "req-1", "traceparent": "t"})
            assert answer.status == 200
            assert b'"content":"hi"' in await whole(answer)
            seen = engine.requests[0]
            assert seen.body == BODY
            assert seen.header("authorization") == ["Bearer k"]
            assert (seen.header("x-request-id"), seen.header("traceparent")) == (["req-1"], ["t"])
            assert seen.header("content-type") == ["application/json"]

    async def test_headers_of_the_connection_stay_behind(self):
        head = b"HTTP/1.1 200 OK\r\nconnection: x-own, close\r\nx-own: 1\r\nkeep-alive: 5\r\nx-request-id: e\r\n"
        async with (
            peer([head + b"x-shown: 2\r\ncontent-length: 1\r\n\r\na"]) as server,
            driver_to(f"http://127.0.0.1:{server.port}") as driver,
        ):
            answer = await forward(driver)
            assert answer.headers == [("x-shown", "2"), ("content-length", "1")]

    @pytest.mark.parametrize("status", [400, 404, 413, 422, 501])
    async def test_RL_01_the_clients_own_mistakes_come_back_in_the_engines_words(self, status):
        script = HttpScript(faults=(HttpFault(status=status, message="too long /x/y"),))
        async with MockHttpEngine(script) as engine, driver_to(engine.url) as driver:
            answer = await forward(driver)
            assert answer.status == status
            assert b"too long /x/y" in await whole(answer)

    @pytest.mark.parametrize(
        ("status", "code", "told", "fault"),
        [
            (429, "rate_limit_exceeded", 429, False),
            (503, "overloaded", 503, False),
            (408, "request_timeout", 408, False),
            (500, "worker_failed", 500, True),
            (502, "worker_failed", 502, True),
            (504, "upstream_timeout", 504, True),
            (507, "worker_failed", 502, True),
            (302, "worker_failed", 502, True),
        ],
    )
    async def test_RL_01_RL_02_what_may_be_tried_elsewhere_and_who_is_to_blame(self, status, code, told, fault):
        script = HttpScript(faults=(HttpFault(status=status, message="in /srv/engine", retry_after="7"),))
        async with MockHttpEngine(script) as engine, driver_to(engine.url) as driver:
            with pytest.raises(GatewayError) as caught:
                await forward(driver)
            error = caught.value
            assert (error.code, error.status, error.worker_fault) == (code, told, fault)
            assert error.retryable
            assert "/srv" not in error.message
            assert error.retry_after == (7.0 if told in (429, 503) else None)

    async def test_a_busy_engine_is_quoted_where_its_words_are_clean(self):
        script = HttpScript(faults=(HttpFault(status=429, message="queue is full"),))
        async with MockHttpEngine(script) as engine, driver_to(engine.url) as driver:
            with pytest.raises(GatewayError, match="no room for the request: queue is full"):
                await forward(driver)

    async def test_err_mapping_not_reachable_is_502_and_no_answer_504(self):
        async with driver_to("http://127.0.0.1:1") as driver:
            with pytest.raises(GatewayError) as caught:
                await forward(driver)
            assert (caught.value.code, caught.value.status) == ("worker_failed", 502)
            assert caught.value.worker_fault
            assert "127.0.0.1" not in caught.value.message
        async with peer([30]) as server, driver_to(f"http://127.0.0.1:{server.port}") as driver:
            with pytest.raises(GatewayError) as caught:
                await driver.health(0.05)
            assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)

    async def test_a_stream_that_breaks_off_after_its_first_bytes(self):
        begun = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
        async with (
            peer([begun, 0.02, Peer.CLOSE]) as server,
            driver_to(f"http://127.0.0.1:{server.port}") as driver,
        ):
            answer = await forward(driver)
            assert await answer.body.read() == b"a"
            with pytest.raises(GatewayError) as caught:
                await answer.body.read()
            assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)

    async def test_closing_the_body_closes_the_engines_connection(self):
        script = HttpScript(texts=("one two three",), delay=0.02)
        async with MockHttpEngine(script) as engine, driver_to(engine.url) as driver:
            answer = await forward(driver, body=BODY[:-1] + b',"stream":true}')
            await answer.body.read()
            answer.body.close()
            async with asyncio.timeout(2):
                while engine.requests[0].state == "running":  # noqa: ASYNC110 - the engine has no event for it
                    await asyncio.sleep(0.005)
            assert engine.requests[0].state == "cancelled"

    async def test_one_that_has_left_the_fleet_closes_when_its_answers_are_over(self):
        script = HttpScript(texts=("one two three",), delay=0.01)
        async with MockHttpEngine(script) as engine:
            driver = HttpDriver(engine.url)
            answer = await forward(driver, body=BODY[:-1] + b',"stream":true}')
            driver.retire()
            assert (await whole(answer)).endswith(b"data: [DONE]\n\n")
            assert engine.requests[0].state == "done"
            await asyncio.sleep(0.02)
            assert engine.connections == 0


class TestRanks:
    async def test_RO_05_a_rank_is_never_part_of_an_address(self):
        async with MockHttpEngine(server="sglang") as engine, driver_to(f"{engine.url}@5") as driver:
            await whole(await forward(driver))
            assert engine.requests[0].header("host") == [engine.address]

    async def test_sglang_takes_pins_and_has_pairs(self):
        for server, can in (("sglang", True), ("vllm", False), ("openai", False)):
            async with MockHttpEngine(server=server) as engine, driver_to(engine.url) as driver:
                await driver.info()
                assert ({"dp_rank", "disaggregation"} <= driver.capabilities) is can

    async def test_AD_01_a_form_stays_as_it_is(self):
        kind = "multipart/form-data; boundary=b"
        form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
        async with MockHttpEngine(HttpScript(audio=True)) as engine, driver_to(f"{engine.url}@5") as driver:
            answer = await driver.forward(
                RequestContext("r"), "POST", "/v1/audio/transcriptions", {"content-type": kind}, form
            )
            await whole(answer)
            seen = engine.requests[0]
            assert (seen.body, seen.header("content-type")) == (form, [kind])

    async def test_dp_base_url_loads_are_asked_at_the_engine_and_are_the_ranks_own(self):
        script = HttpScript(dp_size=3, running=4)
        async with MockHttpEngine(script, server="sglang") as engine, driver_to(f"{engine.url}@2") as driver:
            await driver.info()
            assert [(load.dp_rank, load.running) for load in await driver.loads()] == [(2, 6)]


class TestFacts:
    @pytest.mark.parametrize("server", ["vllm", "sglang", "openai"])
    async def test_which_server_it_is_and_what_it_serves(self, server):
        async with (
            MockHttpEngine(HttpScript(models=("m", "adapter")), server=server) as engine,
            driver_to(engine.url) as driver,
        ):
            info = await driver.info()
            assert driver.runtime == server
            assert (info.model_id, info.models, info.context_length) == ("m", ("m", "adapter"), 4096)
            own = {
                "vllm": {"tokenize_api", "detokenize_api"},
                "sglang": {"generate_api", "dp_rank", "disaggregation"},
                "openai": set(),
            }
            assert driver.capabilities == {"chat_api", "completions_api", "loads"} | own[server]
            assert "secret" not in str(info)

    async def test_a_configured_kind_wins_and_hidden_documents_are_no_harm(self):
        hidden = frozenset({"/openapi.json", "/get_server_info", "/get_model_info"})
        async with MockHttpEngine(HttpScript(hidden=hidden), server="sglang") as engine:
            for configured, runtime in (("", "sglang"), ("vllm", "vllm")):
                async with driver_to(engine.url, runtime=configured) as driver:
                    await driver.info()
                    assert driver.runtime == runtime
                    assert ("generate_api" in driver.capabilities) == (runtime == "sglang")
                    # It may listen; only asking it tells.
                    assert {"transcriptions_api", "translations_api"} <= driver.capabilities

    async def test_one_that_tells_of_no_model_is_no_engine(self):
        async with (
            MockHttpEngine(HttpScript(hidden=frozenset({"/v1/models"}))) as engine,
            driver_to(engine.url) as driver,
        ):
            with pytest.raises(GatewayError, match="does not tell what it serves"):
                await driver.info()

    async def test_health(self):
        async with MockHttpEngine() as engine, driver_to(engine.url) as driver:
            assert await driver.health()
            engine.script = HttpScript(healthy=False)
            assert not await driver.health()
            engine.script = HttpScript(hidden=frozenset({"/health"}))
            assert await driver.health()
            engine.script = HttpScript(hidden=frozenset({"/health", "/v1/models"}))
            assert not await driver.health()

    async def test_loads_of_a_metrics_page(self):
        script = HttpScript(running=2, waiting=1, usage=0.25)
        async with MockHttpEngine(script, server="vllm") as engine, driver_to(engine.url) as driver:
            await driver.info()
            (load,) = await driver.loads()
            assert (load.running, load.waiting, load.usage) == (2, 1, 0.25)

    async def test_an_engine_without_loads_is_asked_once(self):
        async with MockHttpEngine() as engine, driver_to(engine.url) as driver:
            await driver.info()
            with pytest.raises(GatewayError):
                await driver.loads()
            assert "loads" not in driver.capabilities
