"""Llama 3.2 Vision: tiles of the best fitting grid, always as many as there can be at most (spec multimodal 8.9)."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from smg.vision.config import HALF, ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Tensor, integers
from smg.vision.families.llama4 import Llama4Plan, Size, best_grid, fit
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial


class Mllama(Family):
    """``pixel_values`` [n, most tiles, 3, S, S], zeros where an image has no tile.

    ``aspect_ratio_ids`` [n] number the grids from 1, ``aspect_ratio_mask`` [n, most tiles] marks the tiles there are.
    The model looks at images from beside the prompt: each keeps the one token that says where it is.
    """

    name = "mllama"
    placeholder = "<|image|>"
    layout = Layout("batched")
    filter = "bilinear"
    mean = HALF
    std = HALF

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.tile = config.size.get("height", 224)
        self.most = config.number("max_image_tiles", default=4)
        sides = range(1, self.most + 1)
        self.grids: list[Size] = [(rows, columns) for rows in sides for columns in sides if rows * columns <= self.most]

    def plan(self, height: int, width: int) -> Llama4Plan:
        tiles = best_grid(height, width, self.tile, self.most, np.float64)
        # Small images are enlarged to one tile at most.
        bound = (min(tiles[0] * self.tile, max(height, self.tile)), min(tiles[1] * self.tile, max(width, self.tile)))
        shape = (self.most, 3, self.tile, self.tile)
        return Llama4Plan(height, width, shape, 1, tiles, fit(height, width, bound))

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("Llama4Plan", plan)
        rows, columns = plan.tiles
        canvas = np.zeros((3, rows * self.tile, columns * self.tile), np.uint8)
        canvas[:, : plan.inner[0], : plan.inner[1]] = self.resized(image, *plan.inner, split)
        for index in range(rows * columns):
            y, x = divmod(index, columns)
            window(canvas, self.table, out[index], y * self.tile, x * self.tile)
        out[rows * columns :] = 0

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        tiles = [cast("Llama4Plan", plan).tiles for plan in plans]
        counts = np.array([rows * columns for rows, columns in tiles])
        return {
            "aspect_ratio_ids": integers(plans, lambda plan: self.grids.index(cast("Llama4Plan", plan).tiles) + 1),
            "aspect_ratio_mask": (np.arange(self.most) < counts[:, None]).astype(np.int64),
        }
