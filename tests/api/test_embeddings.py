"""Embeddings, classification and reranking over engines that embed (spec api-and-ops 1.5; field case EM-01)."""

import base64
import math
import struct

import aiohttp
import grpc
import openai
import pytest

from smg.api.classify.handler import labels, probabilities
from smg.api.embeddings.handler import packed, shortened
from smg.api.rerank.handler import best, cosine
from smg.core.errors import GatewayError
from smg.engine_server.mock import Fault, Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.contract_fleet import engines_of_contracts, services_over
from tests.api.serving import serving, until
from tests.tenants import limit, used

VECTOR = [0.5, -1.0, 0.25]


async def test_inputs_count_as_tokens_of_their_tenant(gateway, post):
    limit(gateway)
    status, body = await post("/v1/embeddings", input=["one two", "three"])
    assert status == 200
    assert used(gateway, "ip:127.0.0.1") == (1, body["usage"]["total_tokens"])


@pytest.fixture
async def engines():
    async with engines_of_contracts(Script.text("hi")) as engines:
        engines["bge"].script = Script(embedding=VECTOR)
        yield engines


@pytest.fixture
async def gateway(engines, tmp_path):
    async with services_over(engines, tmp_path) as built:
        yield built
        region = built.region
        await until(lambda: region.requests_total() == 0)
        assert [region.inflight(slot) for slot in range(len(engines))] == [(0, 0)] * len(engines)


@pytest.fixture
async def url(gateway):
    async with serving(gateway) as url:
        yield url


@pytest.fixture
async def client(url):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def post(url):
    async with aiohttp.ClientSession() as http:

        async def post(path, **body):
            async with http.post(url + path, json={"model": "bge", **body}) as response:
                return response.status, await response.json()

        yield post


class TestEmbeddings:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"encoding_format": "base64"}, "AAAAPwAAgL8AAIA+"),
            ({"encoding_format": "float"}, VECTOR),
            ({}, VECTOR),
            ({"encoding_format": None}, VECTOR),
        ],
    )
    async def test_EM_01_the_form_of_vectors(self, post, fields, expected):
        status, body = await post("/v1/embeddings", input="hello", **fields)
        assert status == 200
        assert body == {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": expected}],
            "model": "bge",
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }

    async def test_EM_01_an_unknown_form_is_refused(self, post):
        status, body = await post("/v1/embeddings", input="hello", encoding_format="int8")
        assert (status, body["error"]["param"]) == (400, "encoding_format")

    async def test_EM_01_the_official_client_asks_for_base64_by_itself(self, client):
        answer = await client.embeddings.create(model="bge", input="hello")
        assert answer.data[0].embedding == VECTOR

    async def test_EM_01_lists_keep_their_order(self, client, engines):
        engines["bge"].script = Script(embedding=4)
        texts = [" you", " hello", " and", " world"] * 40
        answer = await client.embeddings.create(model="bge", input=texts, encoding_format="float")
        assert [item.index for item in answer.data] == list(range(160))
        first = [(mock.WORD_IDS[text] + place) % 7 for text in texts for place in range(4)]
        assert [number for item in answer.data for number in item.embedding] == first
        assert answer.usage.total_tokens == 160

    @pytest.mark.parametrize("given", [[65, 66, 67], [[65, 66, 67], [70]]])
    async def test_EM_01_token_ids(self, client, engines, given):
        engines["bge"].script = Script(embedding=1)
        answer = await client.embeddings.create(model="bge", input=given, encoding_format="float")
        lists = given if isinstance(given[0], list) else [given]
        assert [item.embedding for item in answer.data] == [[sum(ids) % 7] for ids in lists]
        assert answer.usage.prompt_tokens == sum(map(len, lists))

    async def test_dimensions_cut_and_scale(self, client):
        answer = await client.embeddings.create(model="bge", input="x", dimensions=2)
        assert answer.data[0].embedding == pytest.approx([0.5 / math.sqrt(1.25), -1 / math.sqrt(1.25)])
        assert shortened([0.0, 0.0, 1.0], 2) == [0.0, 0.0]
        assert shortened([3.0], 1) == [3.0]

    @pytest.mark.parametrize(
        ("fields", "param", "code"),
        [
            ({}, "input", "invalid_value"),
            ({"input": ""}, "input", "invalid_value"),
            ({"input": []}, "input", "invalid_value"),
            ({"input": ["a", ""]}, "input[1]", "invalid_value"),
            ({"input": ["a", 3]}, "input[1]", "invalid_value"),
            ({"input": [[1], [99999]]}, "input[1][0]", "invalid_value"),
            ({"input": "a", "dimensions": 0}, "dimensions", "invalid_value"),
            ({"input": "a", "dimensions": 4}, "dimensions", "invalid_value"),
            ({"input": ["a", "b" * 40_000]}, "input[1]", "context_length_exceeded"),
            ({"input": "a", "model": "nope"}, "model", "model_not_found"),
            ({"input": "a", "model": "mlx"}, "model", "unsupported_parameter"),
        ],
    )
    async def test_what_is_wrong_names_the_field(self, post, engines, fields, param, code):
        status, body = await post("/v1/embeddings", **fields)
        assert 400 <= status < 500
        assert (body["error"]["param"], body["error"]["code"]) == (param, code)

    async def test_engines_that_generate_may_embed_too(self, client, engines):
        engines["vllm"].script = Script(embedding=VECTOR)
        assert (await client.embeddings.create(model="vllm", input="a")).data[0].embedding == VECTOR

    async def test_a_failed_call_is_tried_again(self, client, engines, gateway):
        engines["bge"].script = Script(embedding=VECTOR, faults=(Fault(rpc="Embed", first=1),))
        assert (await client.embeddings.create(model="bge", input="a")).data[0].embedding == VECTOR
        assert engines["bge"].calls["Embed"] == 2

    async def test_the_first_failure_is_the_whole_s(self, client, engines, gateway):
        fault = Fault(rpc="Embed", status=grpc.StatusCode.INVALID_ARGUMENT, message="too odd")
        engines["bge"].script = Script(faults=(fault,))
        with pytest.raises(openai.BadRequestError, match="too odd"):
            await client.embeddings.create(model="bge", input=["a", "b", "c"])

    async def test_leaving_gives_everything_back(self, url, engines, gateway):
        engines["bge"].script = Script(faults=(Fault(rpc="Embed", kind="stall"),))
        timeout = aiohttp.ClientTimeout(total=0.3)
        async with aiohttp.ClientSession() as http:
            with pytest.raises(TimeoutError):
                await http.post(f"{url}/v1/embeddings", json={"model": "bge", "input": "a"}, timeout=timeout)
        await until(lambda: gateway.region.requests_total() == 0)

    async def test_it_is_counted(self, client, gateway):
        await client.embeddings.create(model="bge", input="hello")
        series = {key.decode(): value for key, _, value in gateway.metrics.cells.read_series()}
        assert series["smg_router_requests_total\0bge\0embeddings\0false"] == 1
        assert series["smg_router_tokens_total\0bge\0embeddings\0input"] == 5


def test_packed_is_little_endian_float32():
    assert struct.unpack("<3f", base64.b64decode(packed(VECTOR))) == tuple(VECTOR)


class TestClassify:
    @pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
    async def test_the_most_probable_class(self, post, gateway, path):
        for worker in gateway.view.snapshot().workers:
            worker.labels["id2label_json"] = '{"0": "bad", "2": "good"}'
        status, body = await post(path, input=["hello", "AB"])
        assert status == 200
        assert (body["object"], body["model"], body["usage"]) == (
            "list",
            "bge",
            {"prompt_tokens": 7, "total_tokens": 7},
        )
        assert body["id"].startswith("classify-")
        first, second = body["data"]
        assert (first["index"], first["label"], first["num_classes"]) == (0, "bad", 3)
        assert second == first | {"index": 1}
        assert first["probs"] == pytest.approx([0.4995, 0.1115, 0.3890], abs=1e-3)
        assert sum(first["probs"]) == pytest.approx(1)

    async def test_classes_without_names(self, post, engines):
        engines["bge"].script = Script(embedding=[1.0, 2000.0])
        _, body = await post("/classify", input="x")
        assert body["data"] == [{"index": 0, "label": "LABEL_1", "probs": [0.0, 1.0], "num_classes": 2}]

    async def test_a_model_that_generates_is_none_unless_its_engine_tells_classes(self, post, engines, gateway):
        engines["sglang"].script = Script(embedding=VECTOR)
        status, body = await post("/v1/classify", model="sglang", input="a")
        assert (status, body["error"]["code"], body["error"]["param"]) == (400, "unsupported_parameter", "model")
        assert body["error"]["message"] == "the model 'sglang' is no classifier"
        assert engines["sglang"].calls["Embed"] == 0
        for worker in gateway.view.snapshot().workers:
            worker.labels["num_labels"] = "3"
        assert (await post("/v1/classify", model="sglang", input="a"))[0] == 200

    async def test_errors(self, post):
        status, body = await post("/classify")
        assert (status, body["error"]["param"]) == (400, "input")

    def test_labels_and_probabilities(self):
        assert labels("") == labels("nonsense") == labels("[]") == {}
        assert labels('{"0": "a", "x": "b"}') == {0: "a"}
        assert probabilities([1e308, 1e308]) == [0.5, 0.5]


class TestRerank:
    @pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
    async def test_by_nearness_of_vectors(self, post, engines, path):
        engines["bge"].script = Script(embedding=5)
        status, body = await post(path, query="hello", documents=[" and", "hello", {"text": " you"}], top_n=2)
        assert status == 200
        assert (body["object"], body["model"]) == ("rerank", "bge")
        assert body["id"].startswith("rerank-")
        top = body["results"]
        assert top[0]["index"] == 1
        assert len(top) == 2
        # Clients of Cohere's, Jina's and vLLM's API read an object.
        assert top[0]["document"] == ("hello" if path == "/rerank" else {"text": "hello"})
        assert top[0]["score"] == top[0]["relevance_score"] == pytest.approx(1)
        assert top[1]["score"] < 1

    async def test_a_cross_encoder_reads_both_texts_at_once(self, post, engines, gateway):
        for worker in gateway.view.snapshot().workers:
            worker.labels["num_labels"] = "1"
        engines["bge"].script = Script(embedding=1)
        _, body = await post("/rerank", query=" you", documents=[" and", " hello"], return_documents=False)
        pairs = [(mock.WORD_IDS[" you"] + mock.WORD_IDS[text]) % 7 for text in (" and", " hello")]
        assert {result["index"]: result["score"] for result in body["results"]} == dict(enumerate(pairs))
        assert body["usage"]["total_tokens"] == 4
        assert all("document" not in result for result in body["results"])

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"documents": ["a"]}, "query"),
            ({"query": "", "documents": ["a"]}, "query"),
            ({"query": "a"}, "documents"),
            ({"query": "a", "documents": []}, "documents"),
            ({"query": "a", "documents": ["b", 3]}, "documents[1]"),
            ({"query": "a", "documents": ["b", {"text": 3}]}, "documents[1].text"),
            ({"query": "a", "documents": [""]}, "documents[0]"),
            ({"query": "a", "documents": ["b"], "top_k": 0}, "top_k"),
            ({"query": "a", "documents": ["b", "c" * 40_000]}, "documents[1]"),
        ],
    )
    async def test_what_is_wrong_names_the_field(self, post, fields, param):
        status, body = await post("/v1/rerank", **fields)
        assert (status, body["error"]["param"]) == (400, param)

    def test_order_and_cosine(self):
        assert [result.index for result in best([0.1, 0.9, 0.9, 0.5], None, 3)] == [1, 2, 3]
        assert [result.index for result in best([0.1, 0.2], None, 10)] == [1, 0]
        assert cosine([1.0, 0.0], [0.0, 2.0]) == 0
        assert cosine([1.0, 1.0], [2.0, 2.0]) == pytest.approx(1)
        assert cosine([0.0], [1.0]) == 0
        with pytest.raises(GatewayError):
            cosine([1.0], [1.0, 2.0])
