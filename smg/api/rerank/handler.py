"""The handler of reranking.

A model with a single class is a cross-encoder: it reads query and document together, and its logit is the score. Of any
other model the score is how near the vectors of query and document are (cosine).
"""

import math
from collections.abc import Sequence
from typing import Any

from sanic import Request

from smg.api.body import decoded
from smg.api.embeddings.handler import run
from smg.api.embeddings.types import EmbeddingUsage
from smg.api.info.model import engine_labels
from smg.api.rerank.types import MAX_DOCUMENTS, DocumentText, RerankBody, Reranked, RerankResult
from smg.core import clock, wire
from smg.core.errors import GatewayError, bad_request
from smg.core.ids import response_id
from smg.core.wire import kind_of
from smg.pipeline.embed import Embedding, Input
from smg.pipeline.services import Services
from smg.routing.models import resolve


async def rerank(request: Request, services: Services) -> Reranked:
    """``POST /v1/rerank`` and ``/rerank``: the documents by descending score."""
    body = await decoded(wire.decode, request.body, RerankBody)
    if not body.query:
        raise bad_request("a query is needed", "query")
    texts = _documents(body.documents)
    model = resolve(services.view.snapshot(), body.model or "")
    paths = [f"documents[{index}]" for index in range(len(texts))]
    if engine_labels(services, model).get("num_labels") == "1":
        pairs: list[Input] = [(body.query, text) for text in texts]
        done = await run(request, services, "rerank", model.id, pairs, paths)
        scores = [_logit(done, index) for index in range(len(texts))]
    else:
        done = await run(request, services, "rerank", model.id, [body.query, *texts], ["query", *paths])
        query, *vectors = (result.vector for result in done.results)
        scores = [cosine(query, vector) for vector in vectors]
    shown: Sequence[str | DocumentText] | None = None
    if body.return_documents is not False:
        shown = [DocumentText(text) for text in texts] if request.path.startswith("/v1/") else texts
    return Reranked(
        id=response_id(request.ctx.smg.request_id, "rerank-"),
        object="rerank",
        created=clock.created(),
        model=done.model.id,
        results=best(scores, shown, body.top_k or body.top_n),
        usage=EmbeddingUsage(done.tokens, done.tokens),
    )


def best(scores: Sequence[float], texts: Sequence[str | DocumentText] | None, most: int | None) -> list[RerankResult]:
    """The results in order, at most ``most``; of equal scores the earlier document comes first."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    results = []
    for index in order[:most]:
        result = RerankResult(index, scores[index], scores[index])
        if texts is not None:
            result.document = texts[index]
        results.append(result)
    return results


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Cosine of the angle between two vectors; 0 where one has no direction. Raises GatewayError."""
    if len(first) != len(second):
        raise GatewayError("worker_failed", "the engine sent vectors of different lengths", worker_fault=True)
    lengths = math.sqrt(math.fsum(x * x for x in first)) * math.sqrt(math.fsum(x * x for x in second))
    return math.fsum(x * y for x, y in zip(first, second, strict=True)) / lengths if lengths else 0.0


def _logit(done: Embedding, index: int) -> float:
    vector = done.results[index].vector
    if not vector:
        raise GatewayError("worker_failed", "the engine sent no score", worker_fault=True)
    return vector[0]


def _documents(given: list[Any] | None) -> list[str]:
    if not given:
        raise bad_request("at least one document is needed", "documents")
    if len(given) > MAX_DOCUMENTS:
        raise bad_request(f"at most {MAX_DOCUMENTS} documents are allowed, not {len(given)}", "documents")
    return [_text(each, f"documents[{index}]") for index, each in enumerate(given)]


def _text(given: Any, path: str) -> str:
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise bad_request(f"Expected 'str', got '{kind_of(text)}'", f"{path}.text" if isinstance(given, dict) else path)
    if not text:
        raise bad_request("a document must not be empty", path)
    return text
