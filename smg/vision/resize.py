"""Antialiased resize of an RGB image to planes, equal bit for bit to Pillow's or to torchvision's.

Which code runs (compiled kernels, Pillow, NumPy) changes the speed only.
"""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smg.vision import jit, plain
from smg.vision.filters import Axis, Filter, Flavour, axis, frozen, vertical_first
from smg.vision.pool import Split, serial

U8 = NDArray[np.uint8]

# The kernels work on 64 bytes at a time; an image narrower than that costs nothing anyway.
_NARROWEST = 64
# Below this many pixels read and written, handing rows to other threads costs more than it saves.
_SPLIT_FROM = 500_000
PILLOW = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def resize(image: U8, height: int, width: int, kind: Filter, flavour: Flavour, split: Split = serial) -> U8:
    """Resample ``image`` uint8[H, W, 3] (contiguous) to uint8[3, height, width].

    ``split`` spreads rows over threads. An axis that keeps its size is copied. Source: spec multimodal 7.1, 7.2.
    """
    source_height, source_width = image.shape[:2]
    x = axis(source_width, width, kind, flavour) if width != source_width else None
    y = axis(source_height, height, kind, flavour) if height != source_height else None
    down_first = vertical_first(source_height, source_width, height, width, flavour)
    kernels = jit.kernels()
    if kernels is not None and min(width, source_width) >= _NARROWEST:
        return _compiled(kernels, image, (height, width), x, y, down_first, split)
    if flavour == "pillow":
        resized = Image.fromarray(image).resize((width, height), PILLOW[kind])
        return plain.split(np.asarray(resized))
    return modelled(image, x, y, down_first)


def modelled(image: U8, x: Axis | None, y: Axis | None, down_first: bool) -> U8:
    """The same as the kernels, in NumPy."""
    steps = [(x, 1), (y, 0)]
    for one, dimension in reversed(steps) if down_first else steps:
        if one is not None:
            image = plain.resample(image, one, dimension)
    return plain.split(image)


def _compiled(
    kernels: ModuleType,
    image: U8,
    size: tuple[int, int],
    x: Axis | None,
    y: Axis | None,
    down_first: bool,
    split: Split,
) -> U8:
    height, width = size
    source = frozen(image.reshape(image.shape[0], -1))
    planes = np.empty((3, height, width), np.uint8)

    def work(y0: int, y1: int) -> None:
        if x is None and y is None:
            kernels.split_rows(source, planes, y0, y1)
        elif y is None and x is not None:
            kernels.across_rows(source, planes, y0, y1, *kernels.terms(x), *_block(source, width))
        elif x is None and y is not None:
            kernels.down_rows(source, planes, y0, y1, *kernels.terms(y), np.empty((1, source.shape[1]), np.uint8))
        elif x is not None and y is not None:
            block = _block(source, width)
            if down_first:
                middle = np.empty((kernels.BLOCK, source.shape[1]), np.uint8)
                kernels.down_then_across(source, planes, y0, y1, *kernels.terms(x), *kernels.terms(y), *block, middle)
            else:
                middle = np.empty((3, _window(kernels, y), width), np.uint8)
                kernels.across_then_down(source, planes, y0, y1, *kernels.terms(x), *kernels.terms(y), *block, middle)

    pixels = source.size // 3 + height * width
    (split if pixels >= _SPLIT_FROM else serial)(height, work)
    return planes


def _block(source: U8, width: int) -> tuple[U8, U8]:
    return np.empty((source.shape[1], _NARROWEST), np.uint8), np.empty((3, width, _NARROWEST), np.uint8)


def _window(kernels: ModuleType, y: Axis) -> int:
    """Rows of the intermediate image that one strip of output rows can need, and one block on top."""
    step = kernels.STRIP
    end = y.lo + y.taps
    span = end - np.concatenate([np.full(step, y.lo[0]), y.lo])[1 : len(end) + 1]
    return int(span.max()) + int(kernels.BLOCK)
