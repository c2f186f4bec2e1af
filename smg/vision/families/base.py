"""What every family offers: plan an image from its size, fill its part of the tensor, write its place in the prompt.

A plan needs no pixels, so that the prompt's length is known and the tensor allocated before anything is decoded; then
images are filled in independently of each other, each into its own part, without another copy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from smg.core.errors import GatewayError
from smg.vision.config import CLIP_MEAN, CLIP_STD, ImageConfig
from smg.vision.filters import Filter, Flavour
from smg.vision.normalise import STORAGE, Order, Precision, table
from smg.vision.pool import Split, serial
from smg.vision.resize import resize

U8 = NDArray[np.uint8]
Tensor = NDArray[np.generic]


class Vocabulary(Protocol):
    """What a family asks of the model's tokenizer."""

    def id(self, token: str) -> int | None:
        """Id of a special token, None if there is none."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text, no special tokens added."""
        ...


class Replacement(NamedTuple):
    """What takes the place of one placeholder token.

    ``features`` are the (offset, length) ranges of ``ids`` that image features are written over; None means every
    maximal run of ``feature_id``. ``prefix`` tokens that the template put in front belong to the item as well.
    ``before`` and ``after`` are what the template wrote around the placeholder and ``ids`` take the place of, too.
    """

    ids: list[int]
    feature_id: int
    features: list[tuple[int, int]] | None = None
    prefix: int = 0
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What one image becomes.

    ``height`` and ``width`` are the image's own, in pixels; ``shape`` is its part of the primary tensor (flat layouts:
    rows first; batched layouts: one entry without the batch dimension); ``tokens`` counts its feature tokens.
    """

    height: int
    width: int
    shape: tuple[int, ...]
    tokens: int


class Layout(NamedTuple):
    """How the primary tensor is made of its items.

    ``flat``: rows of all items after each other, ``sizes`` names the side tensor with the row counts. ``batched``: one
    entry per item, smaller ones padded with zeros. ``rows`` names the side tensors of a flat layout that have an entry
    for each row of the primary, not for each item.
    """

    kind: Literal["flat", "batched"]
    sizes: str = ""
    rows: tuple[str, ...] = ()


class Family(ABC):
    """One model family under one model's configuration.

    ``flavour`` is whose processor is matched bit for bit: ``pillow`` the slow, ``torchvision`` the fast one.
    ``precision`` is the element type of the primary tensor.
    """

    name: ClassVar[str]
    placeholder: ClassVar[str]
    limit: ClassVar[int] = 10
    layout: ClassVar[Layout]
    keep_on_cpu: ClassVar[tuple[str, ...]] = ()
    filter: ClassVar[Filter] = "bicubic"
    mean: ClassVar[tuple[float, ...]] = CLIP_MEAN
    std: ClassVar[tuple[float, ...]] = CLIP_STD
    # Families that exist only as a torchvision processor have no choice.
    only: ClassVar[Flavour | None] = None
    # Whether ``fill`` also takes images with opacity, uint8[H, W, 4].
    alpha: ClassVar[bool] = False
    order: ClassVar[Order | None] = None

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        self.config = config
        self.flavour: Flavour = self.only or flavour
        self.precision: Precision = precision
        self.kind: Filter = config.resample or self.filter
        mean, std = config.image_mean or self.mean, config.image_std or self.std
        self.image_mean = mean
        self.table = table(mean, std, config.rescale_factor, self.order or self.flavour, precision)

    @classmethod
    def serves(cls, model: Mapping[str, Any]) -> bool:
        """Whether a model of this family with this ``config.json`` takes images at all."""
        return True

    @abstractmethod
    def plan(self, height: int, width: int) -> Plan:
        """Plan an image of this size. Raises GatewayError ``invalid_value`` for sizes the model can't take."""

    @abstractmethod
    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        """Write ``image`` uint8[H, W, 3] (see ``alpha``) into ``out`` of the shape ``plan.shape``. CPU-bound."""

    @abstractmethod
    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        """The tensors that go with the primary one, by name."""

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        """Token ids that take the place of this image's placeholder: by default as many of one id as it has tokens."""
        feature = self.feature_id(vocabulary)
        return Replacement([feature] * plan.tokens, feature)

    def feature_id(self, vocabulary: Vocabulary) -> int:
        """Id of the token that stands for one image feature."""
        configured = self.config_id("image_token_id", "image_token_index")
        return token_id(vocabulary, self.placeholder) if configured is None else configured

    def config_id(self, *names: str) -> int | None:
        """The first of ``names`` that ``config.json`` gives a token id for."""
        found = (self.config.model.get(name) for name in names)
        return next((value for value in found if isinstance(value, int) and value >= 0), None)

    def resized(self, image: U8, height: int, width: int, split: Split) -> U8:
        """``image`` resampled with this family's filter, as uint8[3, height, width]."""
        return resize(image, height, width, self.kind, self.flavour, split)


class Encoded(NamedTuple):
    """Images of one request, ready for an engine: ``tensor`` primary, ``side`` tensors by name, one plan per image."""

    tensor: Tensor
    side: dict[str, Tensor]
    plans: list[Plan]

    @property
    def tokens(self) -> list[int]:
        """Feature tokens of every image."""
        return [plan.tokens for plan in self.plans]


def allocate(family: Family, plans: Sequence[Plan]) -> tuple[Tensor, list[Tensor]]:
    """The primary tensor of all items, and each item's own part of it (a view of the shape ``plan.shape``)."""
    kind = STORAGE[family.precision]
    if family.layout.kind == "flat":
        rows = [plan.shape[0] for plan in plans]
        flat = np.empty((sum(rows), *plans[0].shape[1:]), kind)
        ends = np.cumsum(rows)
        return flat, [flat[end - count : end] for end, count in zip(ends, rows, strict=True)]
    largest = tuple(max(sizes) for sizes in zip(*(plan.shape for plan in plans), strict=True))
    uniform = all(plan.shape == largest for plan in plans)
    batch = np.empty((len(plans), *largest), kind) if uniform else np.zeros((len(plans), *largest), kind)
    return batch, [_corner(batch[i], plan.shape) for i, plan in enumerate(plans)]


def _corner(entry: Tensor, shape: tuple[int, ...]) -> Tensor:
    return entry[tuple(slice(size) for size in shape)]


def encode(family: Family, images: Sequence[U8], split: Split = serial) -> Encoded:
    """Preprocess ``images`` one after the other in the calling thread."""
    plans = [family.plan(image.shape[0], image.shape[1]) for image in images]
    tensor, parts = allocate(family, plans)
    for image, plan, part in zip(images, plans, parts, strict=True):
        family.fill(image, plan, part, split)
    return Encoded(tensor, family.side(plans), plans)


def token_id(vocabulary: Vocabulary, token: str) -> int:
    """Id of ``token``. Raises GatewayError ``invalid_multimodal_request`` when the vocabulary lacks it."""
    found = vocabulary.id(token)
    if found is None:
        raise GatewayError("invalid_multimodal_request", f"the model's vocabulary has no {token} token")
    return found


def integers(plans: Sequence[Plan], of: Callable[[Plan], int | Sequence[int]]) -> NDArray[np.int64]:
    """int64 tensor with one entry or row per plan."""
    return np.array([of(plan) for plan in plans], np.int64)
