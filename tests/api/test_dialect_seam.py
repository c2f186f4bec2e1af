"""What a dialect may rely on, shown with a toy: one row in the table, and everything is in its own shape."""

import json
from itertools import pairwise

import aiohttp
import pytest
from yarl import URL

from smg.api.openapi import document
from smg.api.routes import Api
from smg.api.table import DIALECTS
from smg.config.settings import SecuritySettings, ServerSettings, Settings
from smg.core.errors import GatewayError
from tests.api.serving import frames, send, serving, until
from tests.api.toy_dialect import BUSY, Toy, ToyStream
from tests.pipeline.fakes import FOREVER, SETTINGS, end, text, world

TABLE = (*DIALECTS, Toy())
ANSWER = [[text("hello", cached_tokens=2)], [text(" wor", cached_tokens=2)], [text("ld"), end()]]
THINKING = [[text("<think>hm")], [text("m</think>he")], [text("llo"), end()]]
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


class Place:
    """The toy and the real dialects in front of a scripted engine."""

    def __init__(self, http, script, settings=SETTINGS, model="m", **record):
        self.world = world({"w1": [script]}, settings, model, **record)
        self._http = http
        self.headers = {}

    async def ask(self, path="/toy/m/say", method="POST", headers=None, **fields):
        """One request; returns the response and its body, decoded when it is JSON."""
        data = None if method == "GET" else json.dumps({"say": "hi"} | fields)
        async with (
            serving(self.world.services, TABLE) as url,
            self._http.request(method, URL(url + path, encoded=True), data=data, headers=headers) as response,
        ):
            body = await response.read()
        assert self.world.idle()
        return response, json.loads(body) if response.content_type == "application/json" else body


def fold(events):
    """The buffered answer that a stream stands for; every event has the next number."""
    numbers = [value["n"] for name, value in events if name != "ping"]
    assert all(two == one + 1 for one, two in pairwise([-1, *numbers]))
    answer, blocks, inside = {}, [], False
    for name, value in events:
        match name:
            case "open":
                answer = {"id": value["id"], "model": value["model"]}
            case "block":
                assert not inside
                inside = True
                blocks.append({"kind": value["kind"], "text": ""})
            case "delta":
                assert inside
                blocks[-1]["text"] += value["text"]
            case "block_end":
                inside = False
            case "end":
                assert not inside
                answer |= {"blocks": blocks, "why": value["why"], "usage": value["usage"]}
    return answer


class TestAnswers:
    @pytest.mark.parametrize(
        ("script", "model", "fields", "blocks", "why"),
        [
            (ANSWER, "m", {}, [("text", "hello world")], "stop"),
            (ANSWER, "m", {"stop": ["o w"]}, [("text", "hell")], "stop"),
            (ANSWER, "qwen3", {}, [("text", "hello world")], "stop"),
            (THINKING, "qwen3", {}, [("thought", "hmm"), ("text", "hello")], "stop"),
            ([[text("<think>h"), end(reason="length")]], "qwen3", {}, [("thought", "h")], "length"),
            ([[end()]], "m", {}, [("text", "")], "stop"),
            ([[end()]], "qwen3", {}, [("text", "")], "stop"),
        ],
    )
    async def test_streamed_and_buffered_answers_agree(self, http, script, model, fields, blocks, why):
        mine = {"x-request-id": "mine"}
        place = Place(http, script, model=model)
        whole = (await place.ask(f"/toy/{model}/say", headers=mine, **fields))[1]
        streamed = (await place.ask(f"/toy/{model}/say", headers=mine, stream=True, **fields))[1]
        assert fold(frames(streamed)) == whole
        assert (whole["id"], whole["model"], whole["why"]) == ("toy_mine", model, why)
        assert [(block["kind"], block["text"]) for block in whole["blocks"]] == blocks

    async def test_direct_and_tapped_streams_are_the_same_bytes(self, http, monkeypatch):
        # One token per batch: a tapped row writes an event for each batch, a direct one for each token.
        place = Place(http, [[text(" the")], [text("#"), end()]])
        bodies = []
        for plain in (True, False):
            monkeypatch.setattr("smg.pipeline.choice.Choice.plain", plain)
            bodies.append((await place.ask(headers={"x-request-id": "mine"}, stream=True))[1])
        assert bodies[0] == bodies[1]

    async def test_a_parser_that_waits_changes_no_byte(self, http, monkeypatch):
        script = [*([text(char)] for char in "<think>hm</think>he<llo"), [end()]]
        place, bodies, direct = Place(http, script, model="qwen3"), [], []
        template = ToyStream.template

        def counting(*which):
            found = template(*which)
            direct.append(found is not None)
            return found

        for answer in (counting, lambda *_: None):
            monkeypatch.setattr(ToyStream, "template", answer)
            asked = place.ask("/toy/qwen3/say", headers={"x-request-id": "mine"}, stream=True)
            bodies.append((await asked)[1])
        assert bodies[0] == bodies[1]
        assert any(direct)

    async def test_a_stream_begins_with_the_counts_of_the_prompt(self, http):
        place = Place(http, ANSWER)
        usage = (await place.ask())[1]["usage"]
        name, first = frames((await place.ask(stream=True))[1])[0]
        assert (usage["cached"], usage["out"]) == (2, 11)
        assert (name, first["usage"]) == ("open", usage | {"out": 0})

    async def test_a_block_is_opened_before_text_that_goes_direct_and_else_when_it_comes(self, http):
        for model, script, names in (
            ("m", ANSWER, ["open", "block", "delta"]),
            ("qwen3", THINKING, ["open", "block", "delta", "delta", "block_end", "block", "delta"]),
        ):
            events = frames((await Place(http, script, model=model).ask(f"/toy/{model}/say", stream=True))[1])
            assert [name for name, _ in events][: len(names)] == names

    async def test_keep_alives_are_the_dialects_own(self, http):
        silent = Settings(routing=SETTINGS.routing, server=ServerSettings(sse_keepalive_secs=0.05))
        events = frames((await Place(http, [0.2, *ANSWER], silent).ask(stream=True))[1])
        assert events[0] == ("ping", {"n": None})
        assert fold(events)["blocks"] == [{"kind": "text", "text": "hello world"}]

    async def test_parameters_of_the_path_are_unquoted(self, http):
        assert (await Place(http, ANSWER, model="org/a b").ask("/toy/org%2Fa%20b/say"))[1]["model"] == "org/a b"

    async def test_requests_are_named_by_the_dialect(self, http):
        place = Place(http, ANSWER)
        response, whole = await place.ask()
        assert whole["id"] == response.headers["x-request-id"]
        assert whole["id"].startswith("toy_")
        assert place.world.services.seen[0].endpoint == "toy"
        assert place.world.metric("router_requests_total\0m\0toy") == 1

    @pytest.mark.parametrize("stream", [False, True])
    async def test_answers_have_the_dialects_headers(self, http, stream):
        response, _ = await Place(http, ANSWER).ask(headers={"x-request-id": "mine"}, stream=stream)
        assert (response.status, response.headers["toy-request"]) == (200, "mine")

    async def test_a_client_that_leaves_stops_the_engine(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        async with serving(place.services, TABLE) as url:
            reader, writer = await send(url, {"say": "hi", "stream": True}, "/toy/m/say")
            await reader.readuntil(b'"a"')
            writer.close()
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)

    async def test_the_other_dialects_do_not_notice(self, http):
        chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        response, body = await Place(http, ANSWER).ask("/v1/chat/completions", **chat)
        assert body["choices"][0]["message"]["content"] == "hello world"
        assert "toy-request" not in response.headers


class TestOwnRoutes:
    async def test_a_route_of_its_own_shares_headers_and_parameters(self, http):
        place = Place(http, ANSWER, model="org/m")
        response, body = await place.ask("/toy/org%2Fm/count", say="hello there")
        assert body == {"tokens": 6}
        assert response.headers["toy-request"].startswith("toy_")
        assert place.world.drivers.opened == []

    async def test_its_errors_are_the_dialects(self, http):
        response, body = await Place(http, ANSWER).ask("/toy/nope/count")
        assert (response.status, body["toy_error"]["code"]) == (404, "model_not_found")

    async def test_the_api_document_has_all_routes(self):
        paths = document(Api(TABLE).routes)["paths"]
        assert {"/toy/{model}/say", "/toy/{model}/count"} <= set(paths)


LOCKED = Settings(security=SecuritySettings(api_key=("key",)))
SMALL = Settings(server=ServerSettings(max_payload_size=64))


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("settings", "method", "path", "fields", "status", "code"),
        [
            (SETTINGS, "POST", "/toy/m/say", {"say": ""}, 400, "invalid_value"),
            (SETTINGS, "POST", "/toy/m/say", {"most": 1000}, 400, "context_length_exceeded"),
            (LOCKED, "POST", "/toy/m/say", {}, 401, "invalid_api_key"),
            (LOCKED, "POST", "/toy/m/count", {}, 401, "invalid_api_key"),
            (SETTINGS, "POST", "/toy/nope/say", {}, 404, "model_not_found"),
            (SETTINGS, "POST", "/toy/m/elsewhere", {}, 404, "not_found"),
            (SETTINGS, "GET", "/toy/m/say", {}, 405, "method_not_allowed"),
            (SMALL, "POST", "/toy/m/say", {"say": "x" * 100}, 413, "request_too_large"),
        ],
    )
    async def test_an_error_has_the_dialects_shape_wherever_it_comes_from(
        self, http, settings, method, path, fields, status, code, stream
    ):
        place = Place(http, ANSWER, settings)
        response, body = await place.ask(path, method, {"x-request-id": "mine"}, stream=stream, **fields)
        assert response.status == status
        assert (body["toy_error"]["code"], body["toy_error"]["request"]) == (code, "mine")
        assert response.headers["x-smg-error-code"] == response.headers["toy-error"] == code
        assert response.headers["toy-request"] == response.headers["x-request-id"] == "mine"
        if status == 401:
            assert response.headers["www-authenticate"] == "Bearer"
        if status == 405:
            assert response.headers["allow"] == "POST"

    @pytest.mark.parametrize(("method", "path"), [("POST", "/toys"), ("POST", "/nowhere"), ("GET", "/v1/models/x")])
    async def test_elsewhere_errors_are_not_the_dialects(self, http, method, path):
        response, body = await Place(http, ANSWER).ask(path, method)
        assert (response.status, body["error"]["type"]) == (404, "not_found_error")
        assert response.headers["x-request-id"].startswith("req-")
        assert "toy-request" not in response.headers

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_dialect_chooses_its_status(self, http, stream):
        place = Place(http, ANSWER)
        place.world.fleet.set("w1", "not_ready")
        response, body = await place.ask(stream=stream)
        assert (response.status, body["toy_error"]["code"]) == (BUSY, "no_available_workers")
        assert response.headers["retry-after"] == "1"

    async def test_an_error_in_mid_stream_is_its_last_event(self, http):
        script = [[text(" the")], BROKEN]
        response, body = await Place(http, script).ask(stream=True, headers={"x-request-id": "mine"})
        assert response.status == 200
        *events, (name, last) = frames(body)
        assert [name for name, _ in events] == ["open", "block", "delta"]
        assert (name, last["n"]) == ("error", 3)
        assert last["toy_error"] == {"code": BROKEN.code, "message": BROKEN.message, "request": "mine"}

    async def test_our_own_mistakes_tell_the_client_nothing(self, http, monkeypatch):
        monkeypatch.setattr(Toy, "answer", lambda *_: 1 / 0)
        response, body = await Place(http, ANSWER).ask()
        assert (response.status, body["toy_error"]["code"]) == (500, "internal_error")
        assert "division" not in str(body)
