"""LLaVA-NeXT and LLaVA-OneVision: a squashed view and tiles of the best fitting canvas (spec multimodal 8.6)."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np

from smg.core.errors import bad_request
from smg.vision.config import ImageConfig
from smg.vision.families.base import U8, Family, Layout, Plan, Tensor, integers
from smg.vision.filters import Flavour
from smg.vision.layouts import window
from smg.vision.normalise import Precision
from smg.vision.pool import Split, serial

Size = tuple[int, int]


class TilePlan(Plan, frozen=True):
    """``canvas`` is the height and width that is cut into tiles, ``inner`` that of the image in its middle."""

    canvas: Size
    inner: Size


def best_canvas(height: int, width: int, canvases: Sequence[Size]) -> Size:
    """The canvas that keeps most of the image's pixels and, of these, wastes the least; the first one wins."""

    def worth(canvas: Size) -> tuple[int, int]:
        scale = min(canvas[1] / width, canvas[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - canvas[0] * canvas[1]

    return max(canvases, key=worth)


def fit(height: int, width: int, canvas: Size) -> Size:
    """Height and width of the image scaled so that it just fits ``canvas``; the free side is rounded up."""
    scale_x, scale_y = canvas[1] / width, canvas[0] / height
    if scale_x < scale_y:
        return min(math.ceil(height * scale_x), canvas[0]), canvas[1]
    return canvas[0], min(math.ceil(width * scale_y), canvas[1])


def unpadded(height: int, width: int, rows: int, columns: int) -> Size:
    """Feature rows and columns that remain of a canvas when those that lie in its padding are dropped.

    Models drop them from the features, so the prompt must have as many fewer tokens.
    """
    if width / height > columns / rows:
        inner = int(round(height * (columns / width), 7))
        return rows - 2 * ((rows - inner) // 2), columns
    inner = int(round(width * (rows / height), 7))
    return rows, columns - 2 * ((columns - inner) // 2)


class LlavaNext(Family):
    """``pixel_values`` [n, tiles, 3, S, S], the squashed view first; ``image_sizes`` are the original (h, w)."""

    name = "llava_next"
    placeholder = "<image>"
    limit = 4
    layout = Layout("batched")
    edge: ClassVar[int] = 336
    canvases: ClassVar[tuple[Size, ...]] = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))

    def __init__(self, config: ImageConfig, flavour: Flavour = "torchvision", precision: Precision = "float32") -> None:
        super().__init__(config, flavour, precision)
        self.side_length = config.size.get("shortest_edge") or config.size.get("height") or self.edge
        self.choices = (
            _sizes(config.raw.get("image_grid_pinpoints"))
            or _sizes(config.model.get("image_grid_pinpoints"))
            or self.canvases
        )
        self.grid = self.side_length // config.vision("patch_size", 14)

    def plan(self, height: int, width: int) -> TilePlan:
        if max(height, width) > 200 * min(height, width):
            raise bad_request(f"an image of {width} x {height} pixels is too narrow: the limit is 1 to 200")
        canvas = best_canvas(height, width, self.choices)
        tiles = (canvas[0] // self.side_length, canvas[1] // self.side_length)
        shape = (1 + tiles[0] * tiles[1], 3, self.side_length, self.side_length)
        tokens = self.count(height, width, tiles)
        return TilePlan(height, width, shape, tokens, canvas, fit(height, width, canvas))

    def count(self, height: int, width: int, tiles: Size) -> int:
        """Feature tokens: the squashed view, the canvas without its padding, one line end per row."""
        rows, columns = unpadded(height, width, tiles[0] * self.grid, tiles[1] * self.grid)
        return rows * columns + rows + self.grid**2

    def fill(self, image: U8, plan: Plan, out: Tensor, split: Split = serial) -> None:
        plan = cast("TilePlan", plan)
        edge = self.side_length
        window(self.resized(image, edge, edge, split), self.table, out[0])
        canvas = np.zeros((3, *plan.canvas), np.uint8)
        (rows, columns), (height, width) = plan.canvas, plan.inner
        top, left = (rows - height) // 2, (columns - width) // 2
        canvas[:, top : top + height, left : left + width] = self.resized(image, height, width, split)
        tile = 1
        for y in range(0, rows, edge):
            for x in range(0, columns, edge):
                window(canvas, self.table, out[tile], y, x)
                tile += 1

    def side(self, plans: Sequence[Plan]) -> dict[str, Tensor]:
        return {"image_sizes": integers(plans, lambda plan: (plan.height, plan.width))}


class LlavaOnevision(LlavaNext):
    """LLaVA-OneVision: canvases of up to 6 x 6 tiles, features above 9 tiles shrunk by the model."""

    name = "llava_onevision"
    edge = 384
    canvases = tuple((h * 384, w * 384) for h in range(1, 7) for w in range(1, 7))

    def count(self, height: int, width: int, tiles: Size) -> int:
        """As LLaVA-NeXT, but the model shrinks a large canvas to the features of ``most_tiles`` tiles."""
        rows, columns = unpadded(height, width, tiles[0] * self.grid, tiles[1] * self.grid)
        ratio = math.sqrt(rows * columns / (self.most_tiles() * self.grid**2))
        if ratio > 1.1:
            rows, columns = int(rows // ratio), int(columns // ratio)
        return rows * columns + rows + self.grid**2

    def most_tiles(self) -> int:
        """The 9 of ``vision_aspect_ratio: anyres_max_9``."""
        text = self.config.model.get("vision_aspect_ratio", "anyres_max_9")
        digits = text.rpartition("_")[2] if isinstance(text, str) else ""
        return int(digits) if digits.isdigit() and int(digits) else 9


def _sizes(value: Any) -> tuple[Size, ...]:
    if not isinstance(value, list | tuple):
        return ()
    pairs = [tuple(one) for one in value if isinstance(one, list | tuple) and len(one) == 2]
    return tuple((int(h), int(w)) for h, w in pairs if isinstance(h, int) and isinstance(w, int) and h > 0 and w > 0)
