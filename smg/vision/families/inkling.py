"""Inkling: the image's own size in patches, colours last, and always one more column (spec multimodal 8.8)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from smg.vision.config import ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Replacement, Tensor, Vocabulary, integers
from smg.vision.filters import Flavour
from smg.vision.layouts import patches
from smg.vision.normalise import Precision, normalised, stored
from smg.vision.pool import Split, serial


class InklingPlan(Plan, frozen=True):
    """``inner`` is the height and width that is cut into ``rows`` and ``columns`` of patches."""

    inner: tuple[int, int]
    rows: int
    columns: int


class Inkling(Family):
    """``pixel_values`` [patches of all images, T, S, S, 3]: T copies of each patch, -1 where the image has ended.

    Its only Hugging Face processor is a fast one. ``pillow`` resamples as the engines' own processors did first.
    """

    name = "inkling"
    placeholder = "<|unused_200054|>"
    layout = Layout("flat", "tokens_per_item")
    filter = "lanczos"

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.patch = config.size.get("height") or config.vision("patch_size", 40)
        self.copies = config.temporal_patch_size or 2
        factor = config.raw.get("rescale_image_frac")
        self.factor = factor if isinstance(factor, int | float) and 0 < factor < math.inf else None
        self.cap = config.number("rescale_image_max_upscaled_long_edge", default=2048)
        if config.raw.get("rescale_image_max_upscaled_long_edge", self.cap) is None:
            self.cap = 0
        outside = np.full(1, -1, np.float32)
        std = config.image_std or self.std
        values = normalised(outside, self.image_mean, std, config.rescale_factor, self.order or self.flavour)
        self.outside = stored(values[:, 0], precision)

    @classmethod
    def serves(cls, model: Mapping[str, Any]) -> bool:
        """Whether the model has been given eyes."""
        section = model.get("vision_config")
        return isinstance(section, Mapping) and section.get("decoder_dmodel") is not None

    def plan(self, height: int, width: int) -> InklingPlan:
        inner = self._scaled(height, width)
        rows, columns = -(-inner[0] // self.patch), inner[1] // self.patch + 1
        shape = (rows * columns, self.copies, self.patch, self.patch, 3)
        return InklingPlan(height, width, shape, rows * columns, inner, rows, columns)

    def _scaled(self, height: int, width: int) -> tuple[int, int]:
        """The size with the longer side times ``factor``; ``cap`` bounds what it may grow to (0: nothing does)."""
        if self.factor is None:
            return height, width
        longest = max(height, width)
        target = longest * self.factor
        ratio = (min(target, max(self.cap, longest)) if self.cap else target) / longest
        return max(1, math.floor(height * ratio + 0.5)), max(1, math.floor(width * ratio + 0.5))

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("InklingPlan", plan)
        (height, width), side = plan.inner, self.patch
        canvas = np.zeros((3, plan.rows * side, plan.columns * side), np.uint8)
        canvas[:, :height, :width] = self.resized(image, height, width, split)
        planes = np.empty((len(out), 3 * side**2), out.dtype)
        patches(canvas, self.table, planes, side, split=split)
        grid = out.reshape(plan.rows, plan.columns, *out.shape[1:])
        grid[:, :, 0] = planes.reshape(plan.rows, plan.columns, 3, side, side).transpose(0, 1, 3, 4, 2)
        grid[-1, :, 0, height - (plan.rows - 1) * side :] = self.outside
        grid[:, -1, 0, :, width - (plan.columns - 1) * side :] = self.outside
        grid[:, :, 1:] = grid[:, :, :1]

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {"tokens_per_item": integers(plans, lambda plan: plan.tokens)}

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        """Behind the marker of its content, which the template has written and which belongs to the image."""
        feature = self.feature_id(vocabulary)
        return Replacement([feature] * plan.tokens, feature, prefix=1)
