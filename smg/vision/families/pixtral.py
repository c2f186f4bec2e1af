"""Pixtral and Mistral 3: the image's own size up to a longest edge, line breaks in the prompt (spec multimodal 8.8)."""

import math
from collections.abc import Sequence
from typing import ClassVar, cast

from smg.vision.config import ImageConfig
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


class PixtralPlan(Plan, frozen=True):
    """``rows`` and ``columns`` count the feature tokens down and across."""

    rows: int
    columns: int


class Pixtral(Family):
    """``pixel_values`` [n, 3, H, W] zero-padded to the largest image; ``image_sizes`` are the resized (h, w)."""

    name = "pixtral"
    placeholder = "[IMG]"
    layout = Layout("batched")
    line_break: ClassVar[str] = "[IMG_BREAK]"
    end: ClassVar[str] = "[IMG_END]"
    default_merge: ClassVar[int] = 1

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        merge = config.model.get("spatial_merge_size")
        # One feature stands for a square of merged patches, so sizes are multiples of its side.
        self.square = (config.patch_size or 16) * (
            merge if isinstance(merge, int) and merge > 0 else self.default_merge
        )
        size = config.size
        longest = size.get("longest_edge", 1024)
        self.most = (size.get("height", longest), size.get("width", longest))

    def plan(self, height: int, width: int) -> PixtralPlan:
        ratio = max(height / self.most[0], width / self.most[1])
        inner = (height, width) if ratio <= 1 else (math.floor(height / ratio), math.floor(width / ratio))
        # A side that shrinks to nothing keeps one square.
        rows, columns = (max(1, -(-side // self.square)) for side in inner)
        return PixtralPlan(height, width, (3, rows * self.square, columns * self.square), rows * columns, rows, columns)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        window(self.resized(image, plan.shape[1], plan.shape[2], split), self.table, out, split=split)

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {"image_sizes": integers(plans, lambda plan: plan.shape[1:])}

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        plan = cast("PixtralPlan", plan)
        feature = self.feature_id(vocabulary)
        end_of_line = token_id(vocabulary, self.line_break)
        line = [feature] * plan.columns
        ids = [*line, end_of_line] * (plan.rows - 1) + [*line, token_id(vocabulary, self.end)]
        return Replacement(ids, feature)


class Mistral3(Pixtral):
    """Mistral 3: 2 x 2 patches make one feature."""

    name = "mistral3"
    default_merge = 2
