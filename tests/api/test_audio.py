"""Speech to text over HTTP engines: the upload reaches the engine as it is, and its answer the client (AD-01)."""

import asyncio
import json
import random

import httpx
import pytest

from smg.config.settings import RoutingSettings, ServerSettings, Settings
from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine
from smg.engine_server.mock.http.forms import Part, parts
from smg.fleet.records import RankRecord
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from tests.api.http_world import MODEL, place
from tests.api.serving import until
from tests.pipeline.fakes import SETTINGS

TRANSCRIPTIONS = "/v1/audio/transcriptions"
PATHS = (TRANSCRIPTIONS, "/v1/audio/translations")
SPEECH = random.Random(7).randbytes(780_341)
FIELDS = {"model": MODEL, "response_format": "text", "temperature": "0"}


def engine(**script) -> MockHttpEngine:
    return MockHttpEngine(HttpScript(**({"texts": ("one two three",), "audio": True} | script)))


async def upload(url, fields=FIELDS, path=TRANSCRIPTIONS, data=SPEECH, headers=None) -> httpx.Response:
    files = {} if data is None else {"file": ("speech.wav", data, "audio/x-wav")}
    async with httpx.AsyncClient(timeout=20) as client:
        return await client.post(url + path, data=fields, files=files, headers=headers)


async def transcribes(_model, _text) -> bool:
    return True


def received(seen) -> list[Part]:
    return parts(seen.header("content-type"), seen.body)


def told(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


class TestAD01:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    async def test_AD_01_the_upload_is_the_same_under_every_policy(self, policy):
        async with place(engine(), engine()) as at:
            at.world.services.router._policy = POLICIES[policy](Parts(RoutingSettings(), at.world.fleet.region))
            answer = await upload(at.url)
            assert (answer.status_code, answer.text) == (200, "one two three")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            (seen,) = [seen for each in at.engines for seen in each.requests]
            assert received(seen) == [
                Part("model", None, "", MODEL.encode()),
                Part("response_format", None, "", b"text"),
                Part("temperature", None, "", b"0"),
                Part("file", "speech.wav", "audio/x-wav", SPEECH),
            ]
            await until(at.idle)

    async def test_AD_01_the_header_alone_tells_the_rank(self):
        async with place(engine()) as at:
            region = at.world.fleet.region
            at.world.fleet.workers["h0"].ranks.append(RankRecord(5, 45))
            region.worker_set(45, 0, 2)
            assert (await upload(at.url)).status_code == 200
            (seen,) = at.engines[0].requests
            assert seen.header("x-data-parallel-rank") == ["5"]
            assert [part.name for part in received(seen)] == [*FIELDS, "file"]

    @pytest.mark.parametrize("path", PATHS)
    async def test_AD_01_streams_are_relayed(self, path):
        async with place(engine(piece=3)) as at:
            mine = await upload(at.url, {**FIELDS, "stream": "true"}, path)
            its = await upload(at.engines[0].url, {**FIELDS, "stream": "true"}, path)
            assert (mine.status_code, mine.content) == (200, its.content)
            assert mine.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert at.engines[0].requests[0].path == path
            await until(at.idle)
            assert at.world.metric("router_tokens_total") == 10 + 3

    async def test_AD_01_json_answers_keep_their_type(self):
        async with place(engine()) as at:
            answer = await upload(at.url, {"model": MODEL})
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["text"] == "one two three"

    async def test_AD_01_an_unknown_model_is_404(self):
        async with place(engine()) as at:
            assert told(await upload(at.url, {"model": "nope"})) == (404, "model_not_found", "model")
            assert not at.engines[0].requests

    async def test_AD_01_memory_is_bounded_by_the_payload_limit(self):
        settings = Settings(routing=SETTINGS.routing, server=ServerSettings(max_payload_size=700_000))
        async with place(engine(), settings=settings) as at:
            host, port = at.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST {TRANSCRIPTIONS} HTTP/1.1\r\nhost: h\r\ncontent-type: multipart/form-data; boundary=b\r\n"
            writer.write(f"{head}content-length: {len(SPEECH)}\r\n\r\n".encode())
            # Not a byte of the body has to be there for that.
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
            writer.close()
            assert not at.engines[0].requests

    async def test_an_alias_is_the_only_thing_that_changes(self):
        async with place(engine(), aliases=["nick"]) as at:
            assert (await upload(at.url, {**FIELDS, "model": "nick"})).status_code == 200
            first, *rest = received(at.engines[0].requests[0])
            assert first == Part("model", None, "", MODEL.encode())
            assert rest[-1].content == SPEECH

    async def test_a_field_may_come_several_times_and_in_any_order(self):
        async with place(engine()) as at:
            fields = {"timestamp_granularities[]": ["word", "segment"], "model": MODEL, "hotwords": "ü"}
            assert (await upload(at.url, fields)).status_code == 200
            sent = received(at.engines[0].requests[0])
            assert [part.content for part in sent if part.name == "timestamp_granularities[]"] == [b"word", b"segment"]
            assert Part("hotwords", None, "", "ü".encode()) in sent

    async def test_the_engine_s_key_is_its_own(self):
        async with place(engine(key="engine-key")) as at:
            assert (await upload(at.url, headers={"authorization": "Bearer mine"})).status_code == 200
            assert at.engines[0].requests[0].header("authorization") == ["Bearer engine-key"]


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "data", "expected"),
        [
            ({}, SPEECH, (400, "missing_model", "model")),
            ({"model": ""}, SPEECH, (400, "missing_model", "model")),
            ({"model": MODEL}, b"", (400, "invalid_value", "file")),
        ],
    )
    async def test_what_is_missing_is_named(self, fields, data, expected):
        async with place(engine()) as at:
            assert told(await upload(at.url, fields, data=data)) == expected
            assert not at.engines[0].requests

    async def test_a_file_that_is_no_file(self):
        async with place(engine()) as at, httpx.AsyncClient() as client:
            # Two plain fields in a form, as browsers send them.
            files = [("model", (None, MODEL)), ("file", (None, "speech"))]
            answer = await client.post(at.url + TRANSCRIPTIONS, files=files)
            assert told(answer) == (400, "invalid_value", "file")

    @pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data"])
    async def test_bodies_that_are_no_forms(self, content_type):
        async with place(engine()) as at, httpx.AsyncClient() as client:
            answer = await client.post(
                at.url + TRANSCRIPTIONS, content=b'{"model": "m"}', headers={"content-type": content_type}
            )
            assert answer.status_code == (415 if content_type == "application/json" else 400)
            assert answer.json()["error"]["type"] == "invalid_request_error"

    async def test_engines_that_do_not_listen_are_not_asked(self):
        async with place(engine(audio=False)) as at:
            answer = await upload(at.url)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "unsupported_parameter"
            assert "transcription of audio" in answer.json()["error"]["message"]
            assert not at.engines[0].requests

    async def test_only_engines_that_listen_are_asked(self):
        async with place(engine(audio=False), engine()) as at:
            for _ in range(4):
                assert (await upload(at.url)).status_code == 200
            assert [len(each.requests) for each in at.engines] == [0, 4]

    async def test_an_engine_that_hears_is_meant_also_while_it_is_not_ready(self):
        async with place(engine(audio=False), tokens={"g0": [[]]}) as at:
            at.world.fleet.workers["g0"].features = frozenset({"generate", "audio"})
            at.world.fleet.set_only("h0")
            at.world.services.media.transcribes = transcribes
            answer = await upload(at.url)
            # A generation begins with the model's files, which this world has none of.
            assert answer.json()["error"]["code"] == "multimodal_config_missing"

    async def test_the_engine_s_own_words_for_the_client_s_mistake(self):
        async with place(engine(faults=(HttpFault(status=400, message="no such language"),))) as at:
            answer = await upload(at.url)
            assert (answer.status_code, answer.json()["error"]["message"]) == (400, "no such language")


class TestTrouble:
    @pytest.mark.parametrize("stream", ["false", "true"])
    async def test_RL_03_another_engine_gets_the_same_upload(self, stream):
        broken = engine(faults=(HttpFault(kind="reset"),))
        async with place(broken, engine()) as at:
            for _ in range(3):
                assert (await upload(at.url, {**FIELDS, "stream": stream})).status_code == 200
            assert all(received(seen)[-1].content == SPEECH for seen in at.engines[1].requests)
            await until(at.idle)

    async def test_a_stream_that_breaks_ends_in_an_error_event(self):
        async with place(engine(faults=(HttpFault(kind="reset", after=1),))) as at:
            body = (await upload(at.url, {**FIELDS, "stream": "true"})).text
            *_, last = body.strip().split("\n\n")
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "worker_stream_failed"
            assert "[DONE]" not in body

    async def test_RL_04_a_client_that_leaves_ends_the_work(self):
        async with place(engine(delay=30)) as at:
            running = asyncio.create_task(upload(at.url))
            await until(lambda: at.engines[0].running == 1)
            running.cancel()
            await until(lambda: at.engines[0].requests[0].state == "cancelled", 2.0)
            await until(at.idle)
