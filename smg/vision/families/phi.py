"""Phi-3 Vision and Phi-4 multimodal: tiles of a padded canvas after a view of the whole (spec multimodal 8.8)."""

import math
from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from smg.core.errors import bad_request
from smg.vision.config import HALF, ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Tensor, Vocabulary, integers, token_id
from smg.vision.families.grids import closest_grid
from smg.vision.filters import Flavour
from smg.vision.interpolate import bicubic
from smg.vision.layouts import window
from smg.vision.normalise import Precision, stored, table
from smg.vision.pool import Split, serial

Size = tuple[int, int]


class PhiPlan(Plan, frozen=True):
    """``canvas`` and ``inner`` are heights and widths; the image lies at row ``top``, column 0 of the white canvas."""

    canvas: Size
    inner: Size
    top: int


class _Phi(Family):
    """What both have in common: tile size ``edge``, views padded with zeros to the same number."""

    limit = 4
    layout = Layout("batched")
    edge: ClassVar[int]

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        mean, std = self.image_mean, config.image_std or self.std
        # The view of the whole is interpolated from normalised values and only then rounded to the element type.
        self.floats = table(mean, std, config.rescale_factor, self.order or self.flavour).astype(np.float32)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("PhiPlan", plan)
        canvas = self.painted(image, plan, split)
        whole = np.empty(canvas.shape, np.float32)
        window(canvas, self.floats, whole, split=split)
        out[0] = stored(bicubic(whole, self.edge, self.edge), self.precision)
        columns = plan.canvas[1] // self.edge
        tiles = plan.canvas[0] // self.edge * columns
        for index in range(tiles):
            y, x = divmod(index, columns)
            window(canvas, self.table, out[1 + index], y * self.edge, x * self.edge)
        out[1 + tiles :] = 0

    def painted(self, image: U8, plan: PhiPlan, split: Split) -> U8:
        """The canvas with the resized image on it, uint8[3, H, W]."""
        canvas = np.full((3, *plan.canvas), 255, np.uint8)
        height, width = plan.inner
        canvas[:, plan.top : plan.top + height, :width] = self.resized(image, height, width, split)
        return canvas


class Phi3Vision(_Phi):
    """Up to ``num_crops`` tiles of 336 pixels; a portrait is planned lying on its side."""

    name = "phi3_v"
    placeholder = "<|image|>"
    filter = "bilinear"
    edge = 336
    only = "pillow"
    order = "totensor"

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.kind = "bilinear"
        self.crops = config.number("num_crops", default=16)

    def plan(self, height: int, width: int) -> PhiPlan:
        upright = width < height
        long, short = max(height, width), min(height, width)
        ratio = long / short
        scale = 1
        while scale * math.ceil(scale / ratio) <= self.crops:
            scale += 1
        inner_long = (scale - 1) * self.edge
        inner_short = int(inner_long / ratio)
        if inner_short < 1:
            raise bad_request(f"an image of {width} x {height} pixels is too narrow for this model")
        canvas_short = math.ceil(inner_short / self.edge) * self.edge
        offset = (canvas_short - inner_short) // 2
        rows, columns = canvas_short // self.edge, inner_long // self.edge
        canvas, inner = (canvas_short, inner_long), (inner_short, inner_long)
        if upright:
            canvas, inner, rows, columns = canvas[::-1], inner[::-1], columns, rows
        tokens = (rows * columns + 1) * 144 + 1 + (rows + 1) * 12
        shape = (self.crops + 1, 3, self.edge, self.edge)
        return PhiPlan(height, width, shape, tokens, canvas, inner, offset)

    def painted(self, image: U8, plan: PhiPlan, split: Split) -> U8:
        if plan.width >= plan.height:
            return super().painted(image, plan, split)
        # The reference turns a portrait, resizes, pads above and below, and turns it back. Resampling treats both axes
        # alike but not in the same order, so this must turn it too.
        flat = PhiPlan(plan.width, plan.height, plan.shape, plan.tokens, plan.canvas[::-1], plan.inner[::-1], plan.top)
        turned = np.ascontiguousarray(image.transpose(1, 0, 2))
        return np.ascontiguousarray(super().painted(turned, flat, split).transpose(0, 2, 1))

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {
            "image_sizes": integers(plans, lambda plan: cast("PhiPlan", plan).canvas),
            "num_img_tokens": integers(plans, lambda plan: plan.tokens),
        }

    def feature_id(self, vocabulary: Vocabulary) -> int:
        return token_id(vocabulary, self.placeholder)


class Phi4Multimodal(_Phi):
    """Tiles of 448 pixels with a mask of the patches that are not padding."""

    name = "phi4_multimodal"
    placeholder = "<|endoftext10|>"
    mean = HALF
    std = HALF
    edge = 448
    only = "torchvision"
    patch: ClassVar[int] = 14

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        # The tiles are always bilinear; the configured filter is that of the view of the whole.
        self.kind = "bilinear"
        self.crops = config.number("dynamic_hd", default=36)

    def plan(self, height: int, width: int) -> PhiPlan:
        columns, rows = math.ceil(width / self.edge), math.ceil(height / self.edge)
        if columns * rows > self.crops:
            columns, rows = closest_grid(height, width, self.edge, 1, self.crops)
        canvas = (rows * self.edge, columns * self.edge)
        ratio_x, ratio_y = canvas[1] / width, canvas[0] / height
        inner = (int(height * ratio_x), canvas[1]) if ratio_x < ratio_y else (canvas[0], int(width * ratio_y))
        if min(inner) < 10:
            raise bad_request(f"an image of {width} x {height} pixels is too narrow for this model")
        used_rows, used_columns = self._used(canvas, inner)
        mask_rows, mask_columns = -(-used_rows // 2), -(-used_columns // 2)
        tokens = 256 + 1 + mask_rows * mask_columns + mask_rows + 16
        shape = (1 + rows * columns, 3, self.edge, self.edge)
        return PhiPlan(height, width, shape, tokens, canvas, inner, 0)

    def _used(self, canvas: Size, inner: Size) -> Size:
        """Rows and columns of patches that are not padding entirely."""
        rows, columns = (side // self.patch for side in canvas)
        return rows - (canvas[0] - inner[0]) // self.patch, columns - (canvas[1] - inner[1]) // self.patch

    def mask(self, plan: PhiPlan) -> NDArray[np.float32]:
        """1 for patches with image in them, [1 + tiles, 32, 32]; the view of the whole is all ones."""
        side = self.edge // self.patch
        rows, columns = plan.canvas[0] // self.edge, plan.canvas[1] // self.edge
        whole = np.zeros((rows * side, columns * side), np.float32)
        used_rows, used_columns = self._used(plan.canvas, plan.inner)
        whole[:used_rows, :used_columns] = 1
        tiles = whole.reshape(rows, side, columns, side).transpose(0, 2, 1, 3).reshape(-1, side, side)
        return np.concatenate([np.ones((1, side, side), np.float32), tiles])

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        masks = [self.mask(cast("PhiPlan", plan)) for plan in plans]
        most = max(len(mask) for mask in masks)
        # Missing tiles count as used, as the reference has it.
        padded = [np.concatenate([mask, np.ones((most - len(mask), *mask.shape[1:]), np.float32)]) for mask in masks]
        return {
            "image_sizes": integers(plans, lambda plan: cast("PhiPlan", plan).canvas),
            "image_attention_mask": np.stack(padded),
            "num_img_tokens": integers(plans, lambda plan: plan.tokens),
        }

    def feature_id(self, vocabulary: Vocabulary) -> int:
        return 200010 if vocabulary.id(self.placeholder) is None else token_id(vocabulary, self.placeholder)
