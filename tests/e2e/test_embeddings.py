"""Embeddings of the embedded engine through the official client."""

import math

import httpx
import pytest

from tests.gateway import MODEL, Gateway

pytestmark = pytest.mark.e2e

TEXTS = ["A cat sleeps on the sofa.", "The kitten naps on a couch.", "Interest rates rose by half a percent."]


def cosine(first, second):
    return sum(x * y for x, y in zip(first, second, strict=True))


def test_texts_that_mean_the_same_are_nearer(gateway: Gateway):
    answer = gateway.client().embeddings.create(model=MODEL, input=TEXTS)
    cat, kitten, rates = (item.embedding for item in answer.data)
    assert all(math.isclose(cosine(vector, vector), 1, rel_tol=1e-4) for vector in (cat, kitten, rates))
    assert cosine(cat, kitten) > cosine(cat, rates)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 15


def test_both_forms_and_ids_give_the_same_vector(gateway: Gateway):
    client = gateway.client()
    packed = client.embeddings.create(model=MODEL, input=TEXTS[0]).data[0].embedding
    plain = client.embeddings.create(model=MODEL, input=TEXTS[0], encoding_format="float").data[0].embedding
    assert packed == pytest.approx(plain)
    ids = httpx.post(f"{gateway.url}/v1/tokenize", json={"prompt": TEXTS[0], "add_special_tokens": True}).json()
    by_ids = client.embeddings.create(model=MODEL, input=ids["tokens"], encoding_format="float").data[0].embedding
    assert by_ids == pytest.approx(plain, abs=1e-5)
    short = client.embeddings.create(model=MODEL, input=TEXTS[0], dimensions=64).data[0].embedding
    assert len(short) == 64
    assert math.isclose(cosine(short, short), 1, rel_tol=1e-4)


def test_rerank(gateway: Gateway):
    body = {"query": TEXTS[1], "documents": [TEXTS[2], TEXTS[0]]}
    answer = httpx.post(f"{gateway.url}/v1/rerank", json=body, timeout=60).json()
    assert [result["index"] for result in answer["results"]] == [1, 0]
    assert answer["model"] == MODEL
