"""Llama 4: tiles of the best fitting grid and, beyond one tile, a view of the whole (spec multimodal 8.7)."""

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


class Llama4Plan(Plan, frozen=True):
    """``tiles`` are the rows and columns of the grid, ``inner`` the height and width the image is resized to."""

    tiles: Size
    inner: Size


def best_grid(
    height: int, width: int, tile: int, most: int, kind: type[np.float32] | type[np.float64] = np.float32
) -> Size:
    """Rows and columns of tiles for an image: the least enlargement, else the least reduction; then the least area.

    Scales are compared for equality, so they must be rounded as the reference rounds them: to ``kind``.
    """
    grids = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most // rows + 1)]

    def scale(grid: Size) -> float:
        return float(min(kind(grid[0] * tile) / kind(height), kind(grid[1] * tile) / kind(width)))

    enlarging = [grid for grid in grids if scale(grid) >= 1]
    chosen = min(scale(grid) for grid in enlarging) if enlarging else max(scale(grid) for grid in grids)
    return min((grid for grid in grids if scale(grid) == chosen), key=lambda grid: grid[0] * grid[1])


def fit(height: int, width: int, target: Size) -> Size:
    """The image's height and width scaled to just fit ``target``, the free side rounded down, at least 1."""
    scale_y, scale_x = target[0] / height, target[1] / width
    if scale_x < scale_y:
        return max(1, min(int(height * scale_x), target[0])), target[1]
    return target[0], max(1, min(int(width * scale_y), target[1]))


class Llama4(Family):
    """``pixel_values`` [tiles of all images, 3, S, S]; ``aspect_ratios`` are (rows, columns) of each grid.

    The reference computes in bfloat16, so every value is one, whatever the element type.
    """

    name = "llama4"
    placeholder = "<|image|>"
    limit = 8
    layout = Layout("flat", "patches_per_image")
    filter = "bilinear"
    mean = HALF
    std = HALF
    only = "torchvision"
    order = "bfloat16"

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.tile = config.size.get("height") or 336
        self.most = config.number("max_patches", "max_image_tiles", default=16)
        patch = config.vision("patch_size", 14)
        vision = config.model.get("vision_config")
        ratio = vision.get("pixel_shuffle_ratio", 0.5) if isinstance(vision, dict) else 0.5
        self.per_tile = int((self.tile // patch) ** 2 // round(1 / ratio**2))

    def plan(self, height: int, width: int) -> Llama4Plan:
        tiles = best_grid(height, width, self.tile, self.most)
        canvas = (tiles[0] * self.tile, tiles[1] * self.tile)
        # Small images are enlarged to one tile at most.
        bound = (min(canvas[0], max(height, self.tile)), min(canvas[1], max(width, self.tile)))
        count = tiles[0] * tiles[1]
        views = count + 1 if count > 1 else 1
        shape = (views, 3, self.tile, self.tile)
        return Llama4Plan(height, width, shape, views * self.per_tile, tiles, fit(height, width, bound))

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("Llama4Plan", plan)
        rows, columns = plan.tiles
        canvas = np.zeros((3, rows * self.tile, columns * self.tile), np.uint8)
        canvas[:, : plan.inner[0], : plan.inner[1]] = self.resized(image, *plan.inner, split)
        for index in range(rows * columns):
            y, x = divmod(index, columns)
            window(canvas, self.table, out[index], y * self.tile, x * self.tile)
        if rows * columns > 1:
            window(self.resized(image, self.tile, self.tile, split), self.table, out[rows * columns])

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {
            "aspect_ratios": integers(plans, lambda plan: cast("Llama4Plan", plan).tiles),
            "patches_per_image": integers(plans, lambda plan: plan.shape[0]),
        }

    def feature_id(self, vocabulary: Vocabulary) -> int:
        configured = self.config_id("image_token_index", "image_token_id")
        return token_id(vocabulary, "<|patch|>") if configured is None else configured

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        rows, columns = cast("Llama4Plan", plan).tiles
        feature = self.feature_id(vocabulary)
        tile = [feature] * self.per_tile
        ids = [token_id(vocabulary, "<|image_start|>")]
        if rows * columns > 1:
            across = token_id(vocabulary, "<|tile_x_separator|>")
            line = [*tile, across] * (columns - 1) + [*tile, token_id(vocabulary, "<|tile_y_separator|>")]
            ids += line * rows
        ids += [token_id(vocabulary, "<|image|>"), *tile, token_id(vocabulary, "<|image_end|>")]
        return Replacement(ids, feature)
