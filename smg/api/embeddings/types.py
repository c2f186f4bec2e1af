"""The wire types of embeddings."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from smg.api.prompts import AnyPrompt
from smg.api.sampling import Positive


class EmbeddingBody(msgspec.Struct):
    """The body. ``dimensions`` cuts the vectors and scales them to length 1, for models that are trained for it."""

    needs: ClassVar = ("input",)

    input: AnyPrompt | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    user: str | None = None


class EmbeddingItem(msgspec.Struct):
    """``embedding`` is a list of numbers, or the base64 text of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: Annotated[list[float] | str, Meta(description="numbers, or base64 of little-endian float32")]


class EmbeddingUsage(msgspec.Struct):
    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct):
    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage
