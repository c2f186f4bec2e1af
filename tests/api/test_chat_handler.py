"""Chat over HTTP: a real Sanic server, real pipeline, scripted engines."""

import asyncio
import json

import aiohttp
import pytest

from smg.config.settings import AdmissionSettings, ServerSettings, Settings, TelemetrySettings
from smg.core.errors import GatewayError
from tests.api.serving import frames, send, serving, until
from tests.pipeline.fakes import FOREVER, SETTINGS, end, text, world

HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
GONE = GatewayError("worker_failed", "the engine has gone", detail="10.1.2.3", worker_fault=True)
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
# About 20 kB of events.
BLOCK = text(" the" * 100)
SILENT = Settings(routing=SETTINGS.routing, server=ServerSettings(sse_keepalive_secs=0.05))
ANSWER = [[text("hello")], [text(" world"), end()]]


@pytest.fixture
async def http():
    # Of answers to one request the bytes can be compared.
    async with aiohttp.ClientSession(headers={"x-request-id": "r"}) as session:
        yield session


async def post(http, url, **fields):
    async with http.post(f"{url}/v1/chat/completions", json=HI | fields) as response:
        return response, await response.read()


class TestAnswers:
    async def test_buffered(self, http):
        place = world({"w1": [ANSWER]})
        async with serving(place.services) as url:
            response, body = await post(http, url)
        assert (response.status, response.content_type) == (200, "application/json")
        answer = json.loads(body)
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": "hello world"}
        assert answer["usage"]["completion_tokens"] == 6
        assert place.metric("router_requests_total\0m\0chat\0false") == 1
        assert place.services.seen[0].endpoint == "chat"
        assert place.idle()

    async def test_streamed(self, http):
        place = world({"w1": [ANSWER]})
        async with serving(place.services) as url:
            response, body = await post(http, url, stream=True)
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        *chunks, done = frames(body)
        assert done == "data: [DONE]"
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "hello world"
        # Role, six tokens, end: one event for each token.
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 7 + ["stop"]
        assert place.idle()

    async def test_the_direct_path_and_the_events_path_send_the_same_bytes(self, http, monkeypatch):
        fields = {"stream": True, "stream_options": {"include_usage": True}, "n": 2, "stop": ["##"]}
        # One token per batch: the events path writes an event for each batch, the direct one for each token.
        script = [[text("#", 0), text('"', 1)], [end(0), text(" the", 1)], [text("#", 1)], [text("#", 1)], FOREVER]
        monkeypatch.setattr("smg.core.clock.created", lambda: 5)
        bodies = []
        for tapped in (False, True):
            if tapped:
                monkeypatch.setattr("smg.pipeline.choice.Choice.plain", False)
            async with serving(world({"w1": [script]}).services) as url:
                bodies.append((await post(http, url, **fields))[1])
        assert bodies[0] == bodies[1]
        assert b'"matched_stop":"##"' in bodies[0]

    async def test_OA_04_running_usage(self, http):
        options = {"include_usage": True, "continuous_usage_stats": True}
        script = [[text("aaa", 0)], [text("bb", 1)], [end(0), end(1)]]
        async with serving(world({"w1": [script]}).services) as url:
            _, body = await post(http, url, stream=True, stream_options=options, n=2)
        usages = [frame["usage"] for frame in frames(body)[:-1]]
        assert [usage["completion_tokens"] for usage in usages] == [0, 0, 3, 5, 5, 5, 5]
        assert len({usage["prompt_tokens"] for usage in usages[2:]}) == 1

    async def test_a_large_body_is_read_whole(self, http):
        long = [{"role": "user", "content": " the" * (300 << 10)}]
        place = world({"w1": [ANSWER]}, context_length=8 << 20)
        async with serving(place.services) as url:
            response, _ = await post(http, url, messages=long)
        assert response.status == 200
        assert len(place.drivers.opened[0][1].ids) > 300 << 10

    async def test_the_worker_is_named_only_where_the_operator_wants_it(self, http):
        named = Settings(routing=SETTINGS.routing, telemetry=TelemetrySettings(worker_header=True))
        for settings, expected in ((SETTINGS, None), (named, "w1")):
            async with serving(world({"w1": [ANSWER]}, settings).services) as url:
                for stream in (False, True):
                    response, _ = await post(http, url, stream=stream)
                    assert response.headers.get("x-smg-worker") == expected

    async def test_a_routing_decision_is_told_only_where_the_operator_wants_it(self, http):
        named = Settings(routing=SETTINGS.routing, telemetry=TelemetrySettings(routing_decision_header=True))
        for settings, told in ((SETTINGS, False), (named, True)):
            async with serving(world({"w1": [ANSWER]}, settings).services) as url:
                for stream in (False, True):
                    response, _ = await post(http, url, stream=stream)
                    decision = response.headers.get("x-smg-routing-decision")
                    if not told:
                        assert decision is None
                        continue
                    fields = dict(part.split("=") for part in decision.split("; "))
                    assert list(fields) == ["policy", "reason", "matched", "worker"]
                    assert (fields["policy"], fields["worker"]) == ("round_robin", "w1")
                    matched, total = map(int, fields["matched"].split("/"))
                    assert matched == 0 < total


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("fields", "status", "code", "param"),
        [
            ({"messages": []}, 400, "invalid_value", "messages"),
            ({"temperature": 3}, 400, "invalid_value", "temperature"),
            ({"model": "nope"}, 404, "model_not_found", "model"),
            ({"max_tokens": 1000}, 400, "context_length_exceeded", "max_tokens"),
            ({"max_completion_tokens": 1000}, 400, "context_length_exceeded", "max_completion_tokens"),
            ({"min_tokens": 1000}, 400, "context_length_exceeded", "min_tokens"),
        ],
    )
    async def test_before_the_first_byte_an_error_has_its_status(self, http, stream, fields, status, code, param):
        place = world({"w1": [ANSWER]})
        async with serving(place.services) as url:
            response, body = await post(http, url, stream=stream, **fields)
        error = json.loads(body)["error"]
        assert (response.status, error["code"], error["param"]) == (status, code, param)
        assert response.headers["x-smg-error-code"] == code
        assert response.content_type == "application/json"
        assert place.services.seen[0].notes["error"] == code
        assert place.idle()

    @pytest.mark.parametrize("stream", [False, True])
    async def test_an_engine_that_fails_is_a_502_without_internals(self, http, stream):
        place = world({"w1": [GONE]})
        async with serving(place.services) as url:
            response, body = await post(http, url, stream=stream)
        assert response.status == 502
        assert b"10.1.2.3" not in body
        assert place.idle()

    async def test_OA_07_half_an_emoji(self, http):
        async with serving(world({"w1": [ANSWER]}).services) as url:
            for stream in (b"true", b"false"):
                body = b'{"model":"m","stream":%b,"messages":[{"role":"user","content":"x \\ud83d"}]}' % stream
                async with http.post(f"{url}/v1/chat/completions", data=body) as response:
                    error = (await response.json())["error"]
                assert (response.status, error["type"]) == (400, "invalid_request_error")
                assert error["param"] == "messages[0].content"

    async def test_429_and_503_say_when_to_come_back(self, http):
        place = world({"w1": [ANSWER]})
        place.fleet.set("w1", "not_ready")
        async with serving(place.services) as url:
            response, body = await post(http, url)
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert json.loads(body)["error"]["code"] == "no_available_workers"

    async def test_our_own_mistakes_tell_the_client_nothing(self, http, monkeypatch):
        def broken(*_):
            raise KeyError("secret")

        monkeypatch.setattr("smg.pipeline.preparing.share_out", broken)
        place = world({"w1": [ANSWER]})
        async with serving(place.services) as url:
            for stream in (False, True):
                response, body = await post(http, url, stream=stream)
                assert response.status == 500
                assert json.loads(body)["error"]["code"] == "internal_error"
                assert b"secret" not in body
        assert place.idle()

    async def test_MS_10_an_error_in_mid_stream_is_an_event_and_no_end_marker_follows(self, http):
        place = world({"w1": [[[text("Hello wor")], BROKEN]]})
        async with serving(place.services) as url:
            response, body = await post(http, url, stream=True)
        assert response.status == 200
        *chunks, last = frames(body)
        assert last["error"]["code"] == "worker_stream_failed"
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello wor"
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
        assert place.services.seen[0].notes["error"] == "worker_stream_failed"
        assert place.idle()

    async def test_MS_10_a_buffered_answer_that_breaks_is_a_502(self, http):
        place = world({"w1": [[[text("Hello wor")], BROKEN]]})
        async with serving(place.services) as url:
            response, body = await post(http, url)
        assert (response.status, json.loads(body)["error"]["code"]) == (502, "worker_stream_failed")
        assert place.idle()


class TestTime:
    async def test_the_request_timeout_is_a_504(self, http):
        settings = Settings(routing=SETTINGS.routing, server=ServerSettings(request_timeout_secs=0.05))
        place = world({"w1": [[FOREVER]]}, settings)
        async with serving(place.services) as url:
            response, _ = await post(http, url)
        assert response.status == 504
        assert place.idle()

    async def test_RL_06_comments_keep_a_silent_stream_open(self, http):
        script = [0.2, [text("a")], 0.2, [text("b"), end()]]
        place = world({"w1": [script]}, SILENT)
        async with serving(place.services) as url:
            _, body = await post(http, url, stream=True)
        parts = frames(body)
        events = [part for part in parts if part != ": ping"]
        first, second = (
            index
            for index, part in enumerate(parts)
            if '"content": "a"' in json.dumps(part) or '"b"' in json.dumps(part)
        )
        assert parts[0] == ": ping"
        assert ": ping" in parts[first:second]
        assert parts[-1] == "data: [DONE]"
        assert [event["choices"][0]["delta"].get("content") for event in events[1:-2]] == ["a", "b"]
        assert place.idle()

    async def test_RL_06_keep_alives_to_a_client_that_does_not_read_end_at_the_deadline(self):
        timing = ServerSettings(request_timeout_secs=0.6, sse_keepalive_secs=0.05)
        settings = Settings(routing=SETTINGS.routing, server=timing)
        # Whatever waits for the client, a batch or a keep-alive, must not hold the request's counts any longer.
        place = world({"w1": [[[BLOCK] for _ in range(60)] + [0.3, [end()]]]}, settings, context_length=0)
        async with serving(place.services) as url:
            _, writer = await send(url, HI | {"stream": True})
            await until(lambda: place.drivers.sources)
            await until(place.idle)
            writer.transport.abort()

    async def test_RL_06_after_a_keep_alive_an_error_is_an_event(self, http):
        bad = GatewayError("invalid_request", "no")
        place = world({"w1": [[0.12, bad]]}, SILENT)
        async with serving(place.services) as url:
            response, body = await post(http, url, stream=True)
        *pings, last = frames(body)
        assert response.status == 200
        assert set(pings) == {": ping"}
        assert last["error"]["code"] == "invalid_request"
        assert place.idle()

    async def test_RL_06_a_failure_before_the_first_keep_alive_has_its_status(self, http):
        place = world({"w1": [[0.05, GatewayError("invalid_request", "no")]]})
        async with serving(place.services) as url:
            response, _ = await post(http, url, stream=True)
        assert response.status == 400

    async def test_RL_06_switched_off_nothing_is_sent_in_silence(self, http):
        never = Settings(routing=SETTINGS.routing, server=ServerSettings(sse_keepalive_secs=0))
        async with serving(world({"w1": [[0.2, [text("a"), end()]]]}, never).services) as url:
            _, body = await post(http, url, stream=True)
        assert b": ping" not in body

    async def test_RL_06_a_stream_that_waits_for_admission_is_kept_open(self, http):
        server, admission = ServerSettings(sse_keepalive_secs=0.05), AdmissionSettings(1, 5)
        settings = Settings(routing=SETTINGS.routing, server=server, admission=admission)
        place = world({"w1": [[[text("a")], 0.25, [end()]], ANSWER]}, settings)
        async with serving(place.services) as url:
            first = asyncio.create_task(post(http, url, stream=True))
            await until(lambda: place.drivers.opened)
            _, body = await post(http, url, stream=True)
            await first
        parts = frames(body)
        assert parts[0] == ": ping"
        assert parts[-1] == "data: [DONE]"
        assert place.idle()

    async def test_RL_06_a_wait_that_is_too_long_is_a_503_or_after_a_keep_alive_an_event(self, http):
        server, admission = ServerSettings(sse_keepalive_secs=0.05), AdmissionSettings(1, 5, 0.12)
        settings = Settings(routing=SETTINGS.routing, server=server, admission=admission)
        place = world({"w1": [[[text("a")], 0.6, [end()]]]}, settings)
        async with serving(place.services) as url:
            first = asyncio.create_task(post(http, url, stream=True))
            await until(lambda: place.drivers.opened)
            streamed, buffered = await asyncio.gather(post(http, url, stream=True), post(http, url))
            await first
        assert buffered[0].status == 503
        assert buffered[0].headers["retry-after"] == "1"
        assert streamed[0].status == 200
        assert frames(streamed[1])[-1]["error"]["code"] == "queue_timeout"
        assert json.loads(buffered[1])["error"]["code"] == "queue_timeout"
        assert place.idle()


class TestClientsThatLeave:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_RL_04_a_request_that_waits_for_admission_never_starts(self, http, stream):
        settings = Settings(routing=SETTINGS.routing, admission=AdmissionSettings(1, 5))
        place = world({"w1": [[[text("a")], FOREVER]]}, settings)
        async with serving(place.services) as url:
            _, first = await send(url, HI)
            await until(lambda: place.drivers.sources)
            _, second = await send(url, HI | {"stream": stream})
            await until(lambda: place.fleet.region.waiting_total() == 1)
            second.close()
            await until(lambda: place.fleet.region.waiting_total() == 0)
            first.close()
            await until(place.idle)
        assert len(place.drivers.opened) == 1

    @pytest.mark.parametrize("n", [1, 2])
    async def test_RL_04_a_buffered_request_is_aborted(self, n):
        place = world({"w1": [[[text("a")], FOREVER]]})
        async with serving(place.services) as url:
            _, writer = await send(url, HI | {"n": n})
            await until(lambda: place.drivers.sources and place.drivers.sources[0].pulls == 2)
            writer.close()
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)
        assert place.drivers.cancelled == ["client_disconnect"]
        assert place.services.seen[0].notes["error"] == "client_disconnected"

    async def test_RL_04_a_stream_is_aborted(self):
        place = world({"w1": [[[text("a")], [text("b")], FOREVER]]})
        async with serving(place.services) as url:
            reader, writer = await send(url, HI | {"stream": True})
            await reader.readuntil(b'"b"')
            writer.close()
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)
        assert place.drivers.cancelled == ["client_disconnect"]

    async def test_RL_04_also_after_a_body_that_filled_the_reading_buffer(self):
        place = world({"w1": [[FOREVER]]}, context_length=8 << 20)
        body = HI | {"messages": [{"role": "user", "content": " the" * (100 << 10)}]}
        async with serving(place.services) as url:
            _, writer = await send(url, body)
            await until(lambda: place.drivers.sources)
            writer.close()
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)

    async def test_ME_01_a_client_that_does_not_read_pauses_its_engine_only(self):
        script = [[BLOCK] for _ in range(400)] + [[end()]]
        place = world({"w1": [script]}, context_length=0)
        async with serving(place.services) as url:
            reader, writer = await send(url, HI | {"stream": True})
            await until(lambda: place.drivers.sources)
            source, pulls = place.drivers.sources[0], -1
            while source.pulls != pulls:
                pulls = source.pulls
                await asyncio.sleep(0.2)
            # What the buffers of the kernel, of Sanic and of ours take: some hundred kilobytes of 8 MB.
            assert pulls < 40
            read = [await reader.read(1 << 20)]
            while not read[-1].endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
                read.append(await reader.read(1 << 20))
            writer.close()
        assert b"".join(read).count(b" the") == 400 * 100
        assert place.idle()

    async def test_ME_01_leaving_without_having_read_aborts_the_engine(self):
        place = world({"w1": [[[BLOCK] for _ in range(4000)]]}, context_length=0)
        async with serving(place.services) as url:
            _, writer = await send(url, HI | {"stream": True})
            await until(lambda: place.drivers.sources and place.drivers.sources[0].pulls > 5)
            writer.transport.abort()
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)

    async def test_the_deadline_also_ends_a_stream_nobody_reads(self):
        settings = Settings(routing=SETTINGS.routing, server=ServerSettings(request_timeout_secs=0.5))
        place = world({"w1": [[[BLOCK] for _ in range(4000)]]}, settings, context_length=0)
        async with serving(place.services) as url:
            _, writer = await send(url, HI | {"stream": True})
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)
            writer.transport.abort()
        assert place.drivers.cancelled == ["deadline"]


async def test_one_connection_serves_one_request_after_the_other(http):
    place = world({"w1": [ANSWER]})
    async with serving(place.services) as url:
        for stream in (True, False, True):
            response, _ = await post(http, url, stream=stream)
            assert response.status == 200
    assert len(place.drivers.opened) == 3
