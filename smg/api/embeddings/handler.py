"""The handler of embeddings, and what it shares with the other routes over embeddings."""

import array
import base64
import math
import sys
from collections.abc import Sequence

from sanic import Request

from smg.api.body import decoded
from smg.api.embeddings.types import EmbeddingBody, EmbeddingItem, Embeddings, EmbeddingUsage
from smg.api.hints import hints
from smg.api.prompts import Ids, Texts, either
from smg.api.stream import transport
from smg.core import wire
from smg.core.errors import bad_request
from smg.pipeline.embed import Embedding, Input
from smg.pipeline.services import Services


async def embeddings(request: Request, services: Services) -> Embeddings:
    """``POST /v1/embeddings``: one vector for each text or list of ids, in their order."""
    body = await decoded(wire.decode, request.body, EmbeddingBody)
    given = either(body.input, "input")
    done = await run(request, services, "embeddings", body.model, *several(given, "input"))
    base64_ = body.encoding_format == "base64"
    items = []
    for index, result in enumerate(done.results):
        vector = shortened(result.vector, body.dimensions)
        items.append(EmbeddingItem("embedding", index, packed(vector) if base64_ else vector))
    return Embeddings("list", items, done.model.id, EmbeddingUsage(done.tokens, done.tokens))


async def run(
    request: Request,
    services: Services,
    endpoint: str,
    model: str | None,
    inputs: Sequence[Input],
    paths: Sequence[str],
) -> Embedding:
    """Embed ``inputs``, which the body has at ``paths``; metrics count it under ``endpoint``. Raises GatewayError."""
    ctx = request.ctx.smg
    ctx.endpoint = endpoint
    # Sanic stops reading while a body waits in its buffer; unless it reads on, a disconnect goes unnoticed.
    transport(request).resume_reading()
    return await Embedding(services, ctx, model or "", inputs, paths).run(hints(ctx.headers))


def several(given: Texts | Ids, path: str) -> tuple[list[Input], list[str]]:
    """What ``prompts.either`` found at ``path``, as a list, and where each is."""
    if isinstance(given, str):
        return [given], [path]
    inputs: list[Input] = []
    if isinstance(given[0], int):
        inputs.append([token for token in given if isinstance(token, int)])
        return inputs, [path]
    inputs += [each for each in given if not isinstance(each, int)]
    return inputs, [f"{path}[{index}]" for index in range(len(inputs))]


def shortened(vector: list[float], dimensions: int | None) -> list[float]:
    """The first ``dimensions`` numbers, scaled to length 1. Raises GatewayError when there are not so many."""
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise bad_request(f"this model's embeddings have {len(vector)} dimensions, not {dimensions}", "dimensions")
    cut = vector[:dimensions]
    length = math.sqrt(math.fsum(number * number for number in cut))
    return [number / length for number in cut] if length else cut


def packed(vector: Sequence[float]) -> str:
    """The base64 text of ``vector`` as little-endian float32 (field case EM-01)."""
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
