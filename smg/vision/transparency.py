"""Transparent pixels laid over a background that the model was trained with (spec multimodal 8.4)."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smg.vision.filters import Filter
from smg.vision.resize import PILLOW

U8 = NDArray[np.uint8]

Stage = Literal["before_resize", "after_resize"]

_PLAIN = {"white": 255, "black": 0, "gray": 128}
# Pixels that are computed with at a time: floats take twelve bytes of memory for each.
_BAND_PIXELS = 1 << 18


class Background(msgspec.Struct, frozen=True):
    """One colour (``square`` 0: ``white`` everywhere), or squares of so many pixels, ``white`` and ``grey`` by turns.

    The square at the top left is white, or with ``white_first`` false grey.
    """

    square: int
    white_first: bool
    white: int
    grey: int

    def rows(self, top: int, bottom: int, width: int) -> U8:
        """Rows ``top`` to ``bottom`` as uint8[rows, width, 1]."""
        if not self.square:
            return np.full((bottom - top, width, 1), self.white, np.uint8)
        odd = (np.arange(top, bottom)[:, None] // self.square + np.arange(width) // self.square) % 2 == 1
        return np.where(odd == self.white_first, np.uint8(self.grey), np.uint8(self.white))[:, :, None]


def parse_background(section: Mapping[str, Any]) -> Background:
    """From the ``transparent_bg_config`` of a preprocessor's file; what it lacks has the defaults of Kimi's code."""
    pattern = section.get("pattern", "black")
    if pattern != "chessboard":
        return Background(0, True, _PLAIN.get(pattern, 0) if isinstance(pattern, str) else 0, 0)
    return Background(
        square=_number(section.get("chessboard_square_size"), 16, 1, 1 << 16),
        white_first=section.get("chessboard_square_on_top_left") is not False,
        white=_number(section.get("chessboard_white_value"), 255, 0, 255),
        grey=_number(section.get("chessboard_gray_value"), 200, 0, 255),
    )


def composite(image: U8, background: Background) -> U8:
    """``image`` uint8[H, W, 4] over ``background`` as uint8[H, W, 3], in float32 and cut off, not rounded."""
    height, width = image.shape[:2]
    out = np.empty((height, width, 3), np.uint8)
    step = max(1, _BAND_PIXELS // width)
    for top in range(0, height, step):
        band = image[top : top + step]
        alpha = band[:, :, 3:].astype(np.float32) / np.float32(255)
        mixed = alpha * band[:, :, :3] + (1 - alpha) * background.rows(top, top + len(band), width)
        out[top : top + step] = mixed.astype(np.uint8)
    return out


def resize(image: U8, height: int, width: int, kind: Filter) -> U8:
    """``image`` uint8[H, W, 4] resampled as the installed Pillow does: colours weighed by their opacity."""
    return np.asarray(Image.fromarray(image).resize((width, height), PILLOW[kind]))


def _number(value: Any, default: int, least: int, most: int) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and least <= value <= most else default
