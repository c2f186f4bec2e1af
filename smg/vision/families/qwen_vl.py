"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and kin: any size, patches in squares, two time steps (spec multimodal 8.1, 8.2)."""

import math
from collections.abc import Sequence
from typing import ClassVar, cast

from smg.core.errors import bad_request
from smg.vision.config import HALF, ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Tensor, Vocabulary, integers
from smg.vision.filters import Flavour
from smg.vision.layouts import patches
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial


class QwenPlan(Plan, frozen=True):
    """``grid`` is (time, rows, columns) in patches."""

    grid: tuple[int, int, int]


def smart_resize(height: int, width: int, factor: int, least: float, most: float) -> tuple[int, int]:
    """Height and width nearest to the image's that are multiples of ``factor`` with ``least`` to ``most`` pixels.

    Raises:
        GatewayError: a side is more than 200 times the other.
    """
    if max(height, width) > 200 * min(height, width):
        raise bad_request(f"an image of {width} x {height} pixels is too narrow: the limit is 1 to 200")
    # round() is half to even here, and may give 0, which is below ``least``.
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > most:
        shrink = math.sqrt(height * width / most)
        rows = max(factor, math.floor(height / shrink / factor) * factor)
        columns = max(factor, math.floor(width / shrink / factor) * factor)
    elif rows * columns < least:
        grow = math.sqrt(least / (height * width))
        rows = math.ceil(height * grow / factor) * factor
        columns = math.ceil(width * grow / factor) * factor
    return rows, columns


class Qwen2VL(Family):
    """Qwen2-VL and Qwen2.5-VL: patches of 14 pixels."""

    name = "qwen2_vl"
    placeholder = "<|image_pad|>"
    layout = Layout("flat", "patches_per_image")
    keep_on_cpu = ("image_grid_thw",)
    patch: ClassVar[int] = 14
    pixels: ClassVar[tuple[int, int]] = (56 * 56, 28 * 28 * 1280)

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.patch_size = config.patch_size or self.patch
        self.merge = config.merge_size or 2
        self.time = config.temporal_patch_size or 2
        self.least = config.min_pixels or config.size.get("shortest_edge") or self.pixels[0]
        self.most = config.max_pixels or config.size.get("longest_edge") or self.pixels[1]

    def target(self, height: int, width: int) -> tuple[int, int]:
        """Height and width the image is resized to."""
        return smart_resize(height, width, self.patch_size * self.merge, self.least, self.most)

    def plan(self, height: int, width: int) -> QwenPlan:
        rows, columns = self.target(height, width)
        grid = (1, rows // self.patch_size, columns // self.patch_size)
        count = grid[1] * grid[2]
        features = 3 * self.time * self.patch_size**2
        return QwenPlan(height, width, (count, features), count // self.merge**2, grid)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        _, rows, columns = cast("QwenPlan", plan).grid
        planes = self.resized(image, rows * self.patch_size, columns * self.patch_size, split)
        patches(planes, self.table, out, self.patch_size, self.merge, self.time, split)

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {
            "image_grid_thw": integers(plans, lambda plan: cast("QwenPlan", plan).grid),
            "patches_per_image": integers(plans, lambda plan: plan.shape[0]),
        }


class Qwen3VL(Qwen2VL):
    """Qwen3-VL, Qwen3.5 and Qwen3.6: patches of 16 pixels, another pixel budget, values in [-1, 1]."""

    name = "qwen3_vl"
    mean = HALF
    std = HALF
    patch = 16
    pixels = (65_536, 16_777_216)


class Qwen3Omni(Qwen3VL):
    """Qwen3-Omni: Qwen3-VL's patches under another budget; its ids are those of the thinker."""

    name = "qwen3_omni"
    pixels = (3_136, 12_845_056)

    def feature_id(self, vocabulary: Vocabulary) -> int:
        thinker = self.config.model.get("thinker_config")
        found = thinker.get("image_token_id") if isinstance(thinker, dict) else None
        return found if isinstance(found, int) and found >= 0 else super().feature_id(vocabulary)


class Glm4V(Qwen2VL):
    """GLM-4.1V, GLM-4.5V and GLM-4.6V: budgets count pixels over time, and no side starts below one merged patch."""

    name = "glm4v"
    placeholder = "<|image|>"
    pixels = (112 * 112, 28 * 28 * 15_000)

    def target(self, height: int, width: int) -> tuple[int, int]:
        factor = self.patch_size * self.merge
        if min(height, width) < factor:
            grow = max(factor / height, factor / width)
            height, width = int(height * grow), int(width * grow)
        # A still image counts as many times as a patch has time steps.
        return smart_resize(height, width, factor, self.least / self.time, self.most / self.time)
