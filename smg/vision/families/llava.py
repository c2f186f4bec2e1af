"""LLaVA 1.5: one square view, cropped or padded (spec multimodal 8.5)."""

from collections.abc import Sequence

import numpy as np

from smg.core.errors import bad_request
from smg.vision.config import ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Tensor
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial


def shortest_edge(height: int, width: int, target: int) -> tuple[int, int]:
    """Height and width after the shorter side has become ``target``; the longer one is rounded down."""
    short, long = sorted((height, width))
    other = int(target * long / short)
    return (target, other) if height <= width else (other, target)


def pad_square(image: U8, colour: Sequence[int]) -> U8:
    """``image`` uint8[H, W, 3] in the middle of a square of ``colour``."""
    height, width = image.shape[:2]
    if height == width:
        return image
    side = max(height, width)
    canvas = np.empty((side, side, 3), np.uint8)
    canvas[:] = np.array(colour, np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    canvas[top : top + height, left : left + width] = image
    return canvas


class Llava(Family):
    """The shorter side to S, the middle C x C of it; or, with padding, a square squashed to S x S."""

    name = "llava"
    placeholder = "<image>"
    limit = 4
    layout = Layout("batched")

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.edge = config.size.get("shortest_edge") or config.size.get("height") or 336
        self.crop = config.crop_size.get("height") or self.edge
        self.pad = bool(config.do_pad) or config.model.get("image_aspect_ratio") == "pad"
        self.exact = "height" in config.size
        patch = config.vision("patch_size", 14)
        self.tokens = (self.crop // patch) ** 2

    def plan(self, height: int, width: int) -> Plan:
        if max(height, width) > 200 * min(height, width):
            raise bad_request(f"an image of {width} x {height} pixels is too narrow: the limit is 1 to 200")
        return Plan(height, width, (3, self.crop, self.crop), self.tokens)

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        if self.pad:
            image = pad_square(image, [int(mean * 255) for mean in self.image_mean])
        if self.exact:
            height = width = self.edge
        else:
            height, width = shortest_edge(image.shape[0], image.shape[1], self.edge)
        planes = self.resized(image, height, width, split)
        if min(height, width) < self.crop:
            planes = self._on_black(planes)
        top, left = (planes.shape[1] - self.crop) // 2, (planes.shape[2] - self.crop) // 2
        window(planes, self.table, out, top, left, split)

    def _on_black(self, planes: U8) -> U8:
        """A crop larger than the image takes black around it; where an odd rest goes depends on the flavour."""
        height, width = planes.shape[1:]
        rows, columns = max(self.crop, height), max(self.crop, width)
        canvas = np.zeros((3, rows, columns), np.uint8)
        odd = 1 if self.flavour == "pillow" else 0
        top, left = (rows - height + odd) // 2, (columns - width + odd) // 2
        canvas[:, top : top + height, left : left + width] = planes
        return canvas

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {}
