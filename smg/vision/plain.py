"""The pixel loops in NumPy: they serve until the kernels are compiled, and are the model these are tested on.

Every function returns exactly what its kernel returns.
"""

import numpy as np
from numpy.typing import NDArray

from smg.vision.filters import Axis

U8 = NDArray[np.uint8]


def resample(image: U8, axis: Axis, dimension: int) -> U8:
    """``image`` resampled along one dimension with uint8 rounding (spec multimodal 7.1)."""
    moved = np.moveaxis(image, dimension, 0)
    total = np.full((len(axis.lo), *moved.shape[1:]), 1 << (axis.shift - 1), np.int32)
    shape = (-1, *[1] * (moved.ndim - 1))
    for tap in range(axis.weights.shape[1]):
        rows = np.minimum(axis.lo + tap, axis.source - 1)
        total += moved[rows].astype(np.int32) * axis.weights[:, tap].reshape(shape)
    result = np.clip(total >> axis.shift, 0, 255).astype(np.uint8)
    return np.moveaxis(result, 0, dimension)


def split(image: U8) -> U8:
    """uint8[H, W, 3] to uint8[3, H, W]."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))
