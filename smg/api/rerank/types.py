"""The wire types of reranking."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from smg.api.embeddings.types import EmbeddingUsage
from smg.api.sampling import Positive

MAX_DOCUMENTS = 1024

_DOCUMENT = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
    ]
}


class RerankBody(msgspec.Struct):
    """The body. ``top_n`` is another name of ``top_k``: how many of the best are returned."""

    needs: ClassVar = ("query", "documents")

    query: Annotated[str, Meta(min_length=1)] | None = None
    documents: (
        Annotated[
            list[Any],
            Meta(
                description="texts, or objects with a text",
                extra_json_schema={"minItems": 1, "maxItems": MAX_DOCUMENTS, "items": _DOCUMENT},
            ),
        ]
        | None
    ) = None
    model: str | None = None
    top_k: Positive | None = None
    top_n: Positive | None = None
    return_documents: bool | None = None
    user: str | None = None


class DocumentText(msgspec.Struct):
    """A document as the rerank APIs of Cohere, Jina and vLLM return it."""

    text: str


class RerankResult(msgspec.Struct):
    """``index`` is the document's place in the request; ``relevance_score`` is ``score`` by another name. ``document``
    is its text, and on ``/v1/rerank`` an object with it."""

    index: int
    score: float
    relevance_score: float
    document: str | DocumentText | UnsetType = UNSET


class Reranked(msgspec.Struct):
    """``results`` are the best first."""

    id: str
    object: Literal["rerank"]
    created: int
    model: str
    results: list[RerankResult]
    usage: EmbeddingUsage
