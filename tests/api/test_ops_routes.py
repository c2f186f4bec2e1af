"""Models, health, metrics and admin routes over HTTP."""

import json
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
from yarl import URL

from smg.api import health
from smg.api.dialect import Endpoint
from smg.api.errors import error_response
from smg.api.routes import Api
from smg.api.table import DIALECTS
from smg.config.settings import ModelSettings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.fleet.records import ModelRecord
from tests.api.serving import serving
from tests.pipeline.fakes import end, text, world


class FakeControl:
    def __init__(self, **answers) -> None:
        self._answers = answers
        self.asked = []

    async def call(self, op, **arguments):
        self.asked.append(arguments)
        return self._answers[op]


@pytest.fixture
def place():
    return world({"w1": [[[text("a"), end()]]], "w2": [[]]}, model="org/qwen", context_length=64)


async def get(place, path, **query):
    async with (
        serving(place.services) as url,
        aiohttp.ClientSession() as http,
        http.get(URL(url + path, encoded=True).update_query(query)) as response,
    ):
        kind = response.content_type
        return response.status, await (response.json() if kind == "application/json" else response.text())


class TestModels:
    async def test_RO_01_each_model_once(self, place):
        place.fleet.snapshot().models.append(ModelRecord("llama", aliases=["big"], created=3))
        status, body = await get(place, "/v1/models")
        assert status == 200
        assert body == {
            "object": "list",
            "data": [
                {"id": "org/qwen", "object": "model", "created": 7, "owned_by": "smg", "max_model_len": 64},
                {"id": "llama", "object": "model", "created": 3, "owned_by": "smg"},
            ],
        }

    @pytest.mark.parametrize("path", ["org/qwen", "org%2Fqwen"])
    async def test_one_model_whose_id_has_a_slash(self, place, path):
        status, body = await get(place, f"/v1/models/{path}")
        assert (status, body["id"]) == (200, "org/qwen")

    async def test_an_alias_leads_to_its_model(self, place):
        place.fleet.snapshot().models.append(ModelRecord("llama", aliases=["big"]))
        assert (await get(place, "/v1/models/big"))[1]["id"] == "llama"

    async def test_an_unknown_model_is_404(self, place):
        status, body = await get(place, "/v1/models/nope")
        assert (status, body["error"]["code"]) == (404, "model_not_found")

    async def test_no_model_is_an_empty_list(self):
        nothing = world({})
        nothing.fleet.snapshot().models.clear()
        assert (await get(nothing, "/v1/models"))[1] == {"object": "list", "data": []}


class TestHealth:
    @pytest.mark.parametrize("path", ["/health", "/liveness"])
    async def test_alive_also_while_draining(self, place, path):
        place.services.draining = True
        assert await get(place, path) == (200, "OK")

    async def test_ready(self, place):
        place.fleet.set("w2", "failed")
        assert await get(place, "/readiness") == (200, {"status": "ready", "healthy_workers": 1, "total_workers": 2})

    async def test_not_ready_without_a_ready_worker(self, place):
        for worker in ("w1", "w2"):
            place.fleet.set(worker, "not_ready")
        assert await get(place, "/readiness") == (
            503,
            {"status": "not ready", "reason": "insufficient healthy workers"},
        )

    async def test_not_ready_while_the_tokenizer_loads(self, place):
        place.texts.loaded = False
        assert (await get(place, "/readiness"))[1]["reason"] == "tokenizer not yet registered"

    async def test_ready_without_a_tokenizer_where_none_is_loaded_by_itself(self, place):
        place.texts.loaded = False
        model = ModelSettings(disable_tokenizer_autoload=True)
        place.services.settings = msgspec.structs.replace(place.services.settings, model=model)
        assert (await get(place, "/readiness"))[0] == 200
        place.fleet.snapshot().models[0].tokenizer_dir = "/added"
        assert (await get(place, "/readiness"))[1]["reason"] == "tokenizer not yet registered"

    async def test_not_ready_when_generated_ids_cannot_be_decoded(self, place, monkeypatch):
        monkeypatch.setattr("smg.text.registry.TextModel.decodes", False)
        assert (await get(place, "/readiness"))[1]["reason"] == "tokenizer cannot decode generated text"

    async def test_a_model_without_workers_does_not_make_ready(self, place):
        place.texts.loaded = False
        place.fleet.snapshot().models.append(ModelRecord("idle"))
        assert (await get(place, "/readiness"))[0] == 503

    async def test_draining_comes_first(self, place):
        place.services.draining = True
        assert await get(place, "/readiness") == (503, {"status": "not ready", "reason": "draining"})

    async def test_metrics_show_workers(self, place):
        place.fleet.region.inflight_add(1, 0, 3, 0)
        place.fleet.set("w2", "failed")
        status, body = await get(place, "/metrics")
        assert status == 200
        assert 'smg_worker_requests_active{worker="w1"} 3.0' in body
        assert 'smg_worker_health{worker="w2"} 0.0' in body

    async def test_others_have_turns_while_a_long_page_is_made(self, place, monkeypatch):
        turns = []

        async def turn():
            turns.append(len(turns))

        monkeypatch.setattr(health, "turn", turn)
        monkeypatch.setattr(health, "_STEP_SECS", -1.0)
        status, body = await get(place, "/metrics")
        assert status == 200
        # One for each piece, and each family is at least one.
        assert len(turns) > body.count("# TYPE smg_worker_")


class TestAdmin:
    WORKERS = tuple({"id": f"w{name}", "worker_type": "regular", "models": [name]} for name in "ab")

    async def test_workers(self, place):
        pieces = [msgspec.json.encode(worker) for worker in self.WORKERS]
        place.services.control = control = FakeControl(workers={"json": pieces, "kinds": ["prefill", "regular"]})
        stats = {"regular_count": 1, "prefill_count": 1, "decode_count": 0, "encode_count": 0}
        assert await get(place, "/workers") == (200, {"workers": list(self.WORKERS), "total": 2, "stats": stats})
        await get(place, "/workers", model="b")
        assert control.asked == [{"model": None}, {"model": "b"}]

    async def test_no_workers(self, place):
        place.services.control = FakeControl(workers={"json": [], "kinds": []}, loads={"json": []})
        found = (await get(place, "/workers"))[1]
        assert (found["workers"], found["total"]) == ([], 0)
        assert await get(place, "/get_loads") == (200, {"workers": []})

    async def test_loads(self, place):
        found = [{"worker": "grpc://w1:1", "load": -1}]
        place.services.control = FakeControl(loads={"json": [msgspec.json.encode(found)[1:-1]]})
        for path in ("/get_loads", "/loads"):
            assert await get(place, path) == (200, {"workers": found})

    @pytest.mark.parametrize("path", ["/workers", "/get_loads", "/loads"])
    async def test_without_control_it_is_a_503(self, place, path):
        status, body = await get(place, path)
        assert (status, body["error"]["code"]) == (503, "overloaded")


def test_who_may_call_what():
    access = {(route.method, route.path): route.access for route in Api().routes}
    dialects = {(endpoint.method, endpoint.path): "data" for dialect in DIALECTS for endpoint in dialect.routes}
    assert access == dialects | {
        ("POST", "/v1/tokenize"): "data",
        ("POST", "/v1/detokenize"): "data",
        ("POST", "/v1/embeddings"): "data",
        ("POST", "/v1/audio/transcriptions"): "data",
        ("POST", "/v1/audio/translations"): "data",
        ("POST", "/v1/rerank"): "data",
        ("POST", "/rerank"): "data",
        ("POST", "/v1/classify"): "data",
        ("POST", "/classify"): "data",
        ("POST", "/parse/function_call"): "admin",
        ("POST", "/parse/reasoning"): "admin",
        ("GET", "/debug/requests"): "admin",
        ("GET", "/debug/requests/<id:path>"): "admin",
        ("POST", "/v1/tokenizers"): "admin",
        ("GET", "/v1/tokenizers"): "admin",
        ("GET", "/v1/tokenizers/<tokenizer>"): "admin",
        ("GET", "/v1/tokenizers/<tokenizer>/status"): "admin",
        ("DELETE", "/v1/tokenizers/<tokenizer>"): "admin",
        ("GET", "/v1/models"): "data",
        ("GET", "/v1/models/<model:path>"): "data",
        ("GET", "/health"): "public",
        ("GET", "/liveness"): "public",
        ("GET", "/readiness"): "public",
        ("GET", "/metrics"): "public",
        ("GET", "/workers"): "admin",
        ("POST", "/workers"): "admin",
        ("GET", "/workers/<worker>"): "admin",
        ("PUT", "/workers/<worker>"): "admin",
        ("PATCH", "/workers/<worker>"): "admin",
        ("DELETE", "/workers/<worker>"): "admin",
        ("GET", "/get_loads"): "admin",
        ("GET", "/loads"): "admin",
        ("GET", "/get_model_info"): "data",
        ("GET", "/get_server_info"): "admin",
        ("GET", "/openapi.json"): "public",
    }


class Named(SimpleNamespace):
    """As much of a dialect as a route table needs."""

    def __init__(self, name: str, *paths: str) -> None:
        super().__init__(name=name, label=name, id_prefix=name + "-", routes=tuple(map(Endpoint, paths)))


PLACES = Api(
    [
        Named("chat", "/v1/chat/completions"),
        Named("items", "/v1/items", "/v1/items/<item>/parts"),
        Named("parts", "/v1/items/parts"),
        Named("deep", "/deep/<a>/<b>", "/deeper/<a>"),
    ]
)


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/chat/completions/x", "chat"),
        ("/v1/chat/completionsx", None),
        ("/v1/chat", None),
        ("/v1/items/7/parts", "items"),
        ("/v1/items/7/elsewhere", "items"),
        ("/v1/items/parts/x", "parts"),
        ("/deep/1/2", "deep"),
        ("/deep/1/2/3", "deep"),
        ("/deep", "deep"),
        ("/deepest", None),
        ("/deeper/", "deep"),
        ("/", None),
        ("", None),
    ],
)
def test_a_path_belongs_to_the_dialect_with_the_longest_fitting_route(path, owner):
    found = PLACES.owner(path)
    assert (found and found.name) == owner
    assert PLACES.naming(path) == ((owner + "-", owner) if owner else ("req-", "other"))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_requests_to_a_dialect_are_named_by_it(dialect):
    for endpoint in dialect.routes:
        assert Api().naming(endpoint.path.partition("<")[0]) == (dialect.id_prefix, dialect.label)


def test_an_error_outside_of_all_dialects_has_openai_s_shape():
    ctx = RequestContext("r")
    response = error_response(None, ctx, GatewayError("not_found", "no such path"))
    assert (response.status, response.content_type) == (404, "application/json")
    assert response.headers["x-smg-error-code"] == "not_found"
    assert response.body == (
        b'{"error":{"message":"no such path","type":"not_found_error","param":null,"code":"not_found"}}'
    )
    assert ctx.notes["error"] == "not_found"


def test_a_dialect_that_cannot_show_an_error_does_not_hide_it(caplog):
    response = error_response(Named("bad"), RequestContext("r"), GatewayError("not_found", "no such path"))
    assert (response.status, json.loads(response.body)["error"]["code"]) == (404, "not_found")
    assert "the dialect bad cannot show an error" in caplog.text
