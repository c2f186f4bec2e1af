"""InternVL: the image squashed onto the grid of tiles nearest to its shape, and a thumbnail (spec multimodal 8.9)."""

from collections.abc import Sequence
from typing import cast

from smg.vision.config import CLIP_MEAN, CLIP_STD, ImageConfig
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
from smg.vision.families.grids import closest_grid
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial


class InternPlan(Plan, frozen=True):
    """``columns`` and ``rows`` of tiles."""

    columns: int
    rows: int


class InternVL(Family):
    """``pixel_values`` [tiles of all images, 3, S, S]; a thumbnail follows the tiles if there are several."""

    name = "internvl"
    placeholder = "<IMG_CONTEXT>"
    layout = Layout("flat", "num_patches")
    mean = CLIP_MEAN
    std = CLIP_STD

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.tile = config.size.get("height") or config.size.get("shortest_edge") or 448
        # The processor's own default is one view; every published InternVL sets crop_to_patches.
        cut = config.raw.get("crop_to_patches", True)
        self.least = config.number("min_patches", default=1)
        self.most = config.number("max_patches", default=12) if cut else 1
        side = self.tile // config.vision("patch_size", 14)
        ratio = config.model.get("downsample_ratio", 0.5)
        self.per_tile = int(side**2 * (ratio if isinstance(ratio, float) else 0.5) ** 2)

    def plan(self, height: int, width: int) -> InternPlan:
        columns, rows = (1, 1) if self.most < 2 else closest_grid(height, width, self.tile, self.least, self.most)
        views = columns * rows + (columns * rows > 1)
        return InternPlan(height, width, (views, 3, self.tile, self.tile), views * self.per_tile, columns, rows)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("InternPlan", plan)
        canvas = self.resized(image, plan.rows * self.tile, plan.columns * self.tile, split)
        count = plan.rows * plan.columns
        for index in range(count):
            y, x = divmod(index, plan.columns)
            window(canvas, self.table, out[index], y * self.tile, x * self.tile)
        if count > 1:
            window(self.resized(image, self.tile, self.tile, split), self.table, out[count])

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {"num_patches": integers(plans, lambda plan: plan.shape[0])}

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        feature = self.feature_id(vocabulary)
        start, end = token_id(vocabulary, "<img>"), token_id(vocabulary, "</img>")
        return Replacement([start, *[feature] * plan.tokens, end], feature)
