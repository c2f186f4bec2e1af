"""The handler of classification: the engine's vector holds one logit per class."""

import math
from collections.abc import Mapping, Sequence

import msgspec
from sanic import Request

from smg.api.body import decoded
from smg.api.classify.types import Classification, Classifications, ClassifyBody
from smg.api.embeddings.handler import run, several
from smg.api.embeddings.types import EmbeddingUsage
from smg.api.info.model import engine_labels
from smg.api.prompts import either
from smg.core import clock, wire
from smg.core.errors import GatewayError
from smg.core.ids import response_id
from smg.pipeline.services import Services
from smg.routing.models import resolve


async def classify(request: Request, services: Services) -> Classifications:
    """``POST /v1/classify`` and ``POST /classify``: the most probable label of each input."""
    body = await decoded(wire.decode, request.body, ClassifyBody)
    given = either(body.input, "input")
    _must_classify(services, body.model or "")
    done = await run(request, services, "classify", body.model, *several(given, "input"))
    names = labels(engine_labels(services, done.model).get("id2label_json", ""))
    items = [_item(index, result.vector, names) for index, result in enumerate(done.results)]
    return Classifications(
        id=response_id(request.ctx.smg.request_id, "classify-"),
        object="list",
        created=clock.created(),
        model=done.model.id,
        data=items,
        usage=EmbeddingUsage(done.tokens, done.tokens),
    )


def labels(text: str) -> dict[int, str]:
    """Names of classes from ``{"0": "negative", …}``; what is none is left out."""
    try:
        given = msgspec.json.decode(text or "{}", type=dict[str, str])
    except msgspec.MsgspecError:
        return {}
    return {int(number): name for number, name in given.items() if number.isascii() and number.isdigit()}


def probabilities(logits: Sequence[float]) -> list[float]:
    """Softmax."""
    most = max(logits)
    weights = [math.exp(logit - most) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _must_classify(services: Services, name: str) -> None:
    """Refuse a model that generates and whose engine tells no classes: its vectors are no logits of any (spec
    engine-contract 2.8). Some engines tell no classes of a classifier either, but that it does not generate.

    Raises:
        GatewayError: ``unsupported_parameter`` (400), or as ``resolve``.
    """
    model = resolve(services.view.snapshot(), name)
    told = engine_labels(services, model)
    if model.generates and not (told.get("id2label_json") or told.get("num_labels")):
        raise GatewayError("unsupported_parameter", f"the model '{model.id}' is no classifier", param="model")


def _item(index: int, logits: Sequence[float], names: Mapping[int, str]) -> Classification:
    if not logits or not all(map(math.isfinite, logits)):
        raise GatewayError("worker_failed", "the engine sent no scores of classes", worker_fault=True)
    probs = probabilities(logits)
    best = probs.index(max(probs))
    return Classification(index, names.get(best, f"LABEL_{best}"), probs, len(probs))
