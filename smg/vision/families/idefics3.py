"""Idefics 3 and SmolVLM: tiles of the image squashed onto their grid, then a view of the whole (spec multimodal 8.9).

Checked against ``Idefics3ImageProcessor`` and its Pillow twin, and against vLLM's model of the same name.
"""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from smg.vision.config import HALF, ImageConfig
from smg.vision.families.base import (
    U8,
    Family,
    Layout,
    Plan,
    Replacement,
    Tensor,
    Vocabulary,
    integers,
    token_id,
)
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial

Size = tuple[int, int]

# However large a configuration lets images become, no side gets longer.
_LONGEST = 4096


class IdeficsPlan(Plan, frozen=True):
    """``inner`` is the height and width of the first resize, ``canvas`` of the second; ``rows`` and ``columns`` of
    tiles are 0 where there is only the view of the whole."""

    inner: Size
    canvas: Size
    rows: int
    columns: int


def longest_edge(height: int, width: int, target: int) -> Size:
    """Height and width after the longer side has become ``target``; the shorter one is even, or 1."""
    ratio = width / height
    inner = (_even(int(target / ratio)), target) if width >= height else (target, _even(int(target * ratio)))
    height, width = max(inner[0], 1), max(inner[1], 1)
    if target <= _LONGEST:
        return height, width
    ratio = width / height
    if width >= height:
        return max(int(_LONGEST / ratio), 1), _LONGEST
    return _LONGEST, max(int(_LONGEST * ratio), 1)


def on_tiles(size: Size, tile: int) -> Size:
    """The smallest height and width in whole tiles for an image of ``size`` whose longer side is enlarged to some."""
    height, width = size
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        return math.ceil(int(width / ratio) / tile) * tile, width
    height = math.ceil(height / tile) * tile
    return height, math.ceil(int(height * ratio) / tile) * tile


class Idefics3(Family):
    """``pixel_values`` [tiles of all images, 3, S, S]; ``num_patches`` counts each image's."""

    name = "idefics3"
    placeholder = "<image>"
    layout = Layout("flat", "num_patches", rows=("pixel_attention_mask",))
    filter = "lanczos"
    mean = HALF
    std = HALF

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.longest = config.size.get("longest_edge")
        self.exact = (config.size.get("height"), config.size.get("width"))
        tile = config.raw.get("max_image_size")
        edge = tile.get("longest_edge") if isinstance(tile, dict) else None
        self.tile = edge if isinstance(edge, int) and edge > 0 else 364
        self.cut = config.raw.get("do_image_splitting", True) is not False
        scale = config.model.get("scale_factor")
        side = config.vision("image_size", self.tile) // config.vision("patch_size", 32)
        self.per_tile = int(side**2 / (scale if isinstance(scale, int) and scale > 0 else 2) ** 2)

    def plan(self, height: int, width: int) -> IdeficsPlan:
        inner = self._inner(height, width)
        canvas = on_tiles(inner, self.tile) if self.cut else (self.tile, self.tile)
        rows, columns = canvas[0] // self.tile, canvas[1] // self.tile
        if rows * columns == 1:
            rows = columns = 0
        views = rows * columns + 1
        shape = (views, 3, self.tile, self.tile)
        return IdeficsPlan(height, width, shape, views * self.per_tile, inner, canvas, rows, columns)

    def _inner(self, height: int, width: int) -> Size:
        fixed_height, fixed_width = self.exact
        if self.longest is None and fixed_height and fixed_width:
            return fixed_height, fixed_width
        return longest_edge(height, width, self.longest or 4 * 364)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("IdeficsPlan", plan)
        # Each step starts from the rounded pixels of the one before, the view of the whole from the canvas.
        canvas = self.resized(_pixels(self.resized(image, *plan.inner, split)), *plan.canvas, split)
        for index in range(plan.rows * plan.columns):
            y, x = divmod(index, plan.columns)
            window(canvas, self.table, out[index], y * self.tile, x * self.tile)
        if plan.rows:
            canvas = self.resized(_pixels(canvas), self.tile, self.tile, split)
        window(canvas, self.table, out[plan.rows * plan.columns])

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        """Models drop what their mask calls padding. Views are squares without any; views of padding are not sent."""
        views = sum(plan.shape[0] for plan in plans)
        return {
            "num_patches": integers(plans, lambda plan: plan.shape[0]),
            "pixel_attention_mask": np.ones((views, self.tile, self.tile), np.bool_),
        }

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        """A marker and its place before each tile's features, lines of tiles, and the whole between two markers."""
        plan = cast("IdeficsPlan", plan)
        feature = self.feature_id(vocabulary)
        around = token_id(vocabulary, "<fake_token_around_image>")
        features = [feature] * self.per_tile
        ids: list[int] = []
        for row in range(1, plan.rows + 1):
            for column in range(1, plan.columns + 1):
                ids += [around, *_text(f"<row_{row}_col_{column}>", vocabulary), *features]
            # Another line end comes before the whole, and tokenizers may have one token for both.
            ids += vocabulary.encode("\n" if row < plan.rows else "\n\n")
        ids += [around, *_text("<global-img>", vocabulary), *features, around]
        return Replacement(ids, feature)


class SmolVLM(Idefics3):
    """SmolVLM: the same under its own name."""

    name = "smolvlm"


def _even(side: int) -> int:
    return side + side % 2


def _pixels(planes: U8) -> U8:
    """uint8[3, H, W] to the uint8[H, W, 3] that is resized."""
    return np.ascontiguousarray(planes.transpose(1, 2, 0))


def _text(text: str, vocabulary: Vocabulary) -> list[int]:
    """A marker that is one token in some vocabularies and ordinary text in others."""
    one = vocabulary.id(text)
    return vocabulary.encode(text) if one is None else [one]
