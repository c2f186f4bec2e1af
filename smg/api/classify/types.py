"""The wire types of classification."""

from typing import ClassVar, Literal

import msgspec

from smg.api.embeddings.types import EmbeddingUsage
from smg.api.prompts import AnyPrompt


class ClassifyBody(msgspec.Struct):
    """The body: one text or list of ids, or several."""

    needs: ClassVar = ("input",)

    input: AnyPrompt | None = None
    model: str | None = None
    user: str | None = None


class Classification(msgspec.Struct):
    """``probs`` has the probability of each class, in the model's order."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class Classifications(msgspec.Struct):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classification]
    usage: EmbeddingUsage
