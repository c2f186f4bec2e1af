"""Kimi: the image's own size up to a patch budget, padded to whole merge squares (spec multimodal 8.3 and 8.4)."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

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
from smg.vision.layouts import patches
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial
from smg.vision.transparency import Background, Stage, composite, parse_background, resize


class KimiPlan(Plan, frozen=True):
    """``inner`` is the resized image's height and width, ``padded`` the same with black below and right of it."""

    inner: tuple[int, int]
    padded: tuple[int, int]


class KimiK25(Family):
    """Patches in rows, channel first, nothing merged; ``grid_thws`` tells their arrangement."""

    name = "kimi_k25"
    placeholder = "<|media_pad|>"
    layout = Layout("flat", "patches_per_image")
    keep_on_cpu = ("grid_thws",)
    mean = HALF
    std = HALF
    only: ClassVar[Flavour | None] = "torchvision"
    patches: ClassVar[int] = 16_384

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.patch_size = config.patch_size or 14
        self.merge = config.merge_size or 2
        self.budget = config.number("max_patches", "in_patch_limit", default=self.patches)
        side = config.size.get("max_height") or config.number("patch_limit_on_one_side", default=512)
        self.longest = side * self.patch_size

    def plan(self, height: int, width: int) -> KimiPlan:
        patch = self.patch_size
        count = max(1, height // patch) * max(1, width // patch)
        scale = min(1.0, math.sqrt(self.budget / count), self.longest / height, self.longest / width)
        inner = (
            min(max(1, int(height * scale)), self.longest),
            min(max(1, int(width * scale)), self.longest),
        )
        square = patch * self.merge
        padded = (-(-inner[0] // square) * square, -(-inner[1] // square) * square)
        rows = padded[0] * padded[1] // patch**2
        return KimiPlan(height, width, (rows, 3, patch, patch), rows // self.merge**2, inner, padded)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("KimiPlan", plan)
        planes = self.resized(image, *plan.inner, split)
        if plan.inner != plan.padded:
            canvas = np.zeros((3, *plan.padded), np.uint8)
            canvas[:, : plan.inner[0], : plan.inner[1]] = planes
            planes = canvas
        patches(planes, self.table, out.reshape(len(out), -1), self.patch_size, split=split)

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        patch = self.patch_size
        return {
            "grid_thws": integers(plans, lambda plan: (1, *(n // patch for n in cast("KimiPlan", plan).padded))),
            "patches_per_image": integers(plans, lambda plan: plan.shape[0]),
        }

    def feature_id(self, vocabulary: Vocabulary) -> int:
        configured = self.config_id("media_placeholder_token_id")
        return token_id(vocabulary, self.placeholder) if configured is None else configured


# What the published configuration says.
_CHESSBOARD = Background(square=8, white_first=True, white=255, grey=180)


class KimiK3(KimiK25):
    """Kimi-K3: a larger budget, Pillow's arithmetic, and a chessboard under transparent pixels.

    A configuration of its own background, without a word of when, has it under the image before that is resized.
    """

    name = "kimi_k3"
    patches = 65_536
    only = "pillow"
    order = "totensor"
    alpha = True

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        section = config.raw.get("transparent_bg_config", _CHESSBOARD)
        self.background = parse_background(section) if isinstance(section, Mapping) else _CHESSBOARD
        # Written as null it is off: pixels are what they are, however transparent.
        self.opaque = section is None
        unsaid = "before_resize" if "transparent_bg_config" in config.raw else "after_resize"
        stage = config.raw.get("transparent_bg_fill_stage", unsaid)
        self.stage: Stage = "after_resize" if stage == "after_resize" else "before_resize"

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        if image.shape[2] == 4:
            if self.stage == "after_resize":
                image = resize(image, *cast("KimiPlan", plan).inner, self.kind)
            image = np.ascontiguousarray(image[:, :, :3]) if self.opaque else composite(image, self.background)
        super().fill(image, plan, out, split)

    def prompt(self, plan: Plan, vocabulary: Vocabulary) -> Replacement:
        """Markers, and the size of the image as the client sent it."""
        feature = self.feature_id(vocabulary)
        begin, content, end = (token_id(vocabulary, f"<|media_{part}|>") for part in ("begin", "content", "end"))
        size = vocabulary.encode(f"image {plan.width}x{plan.height}")
        return Replacement([begin, *size, content, *[feature] * plan.tokens, end], feature)
